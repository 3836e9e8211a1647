"""index.interval.bytes, found from what was indexed with it.

An entry is due when its batch starts more than the interval behind the one that was indexed before (spec §4.2). So two entries
that follow one another bound the interval: the batch just before the second was not far enough yet, the second was.

    low <= interval < high

Each such gap votes for the numbers between its bounds, and the numbers with most votes win. Gaps over which the broker was
started again, or that damage made, are outvoted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

UNBOUNDED = 2**62
MOST_GAPS = 20_000
"""Gaps that are looked at; more of them tell nothing new."""


class IntervalVotes:
    """Collects gaps."""

    def __init__(self) -> None:
        self._gaps: Counter[tuple[int, int]] = Counter()
        self.count = 0
        self.closed = 0
        """Gaps that end with an entry."""

    def add(self, low: int, high: int = UNBOUNDED) -> None:
        """Take a gap that intervals in [low, high) explain; `high` is unbounded behind the last entry."""
        if low < high and self.count < MOST_GAPS:
            self._gaps[low, high] += 1
            self.count += 1
            self.closed += high != UNBOUNDED

    def best(self, preferred: Sequence[int]) -> int:
        """Return the interval that explains most gaps: of those, the first that is `preferred`, a power of two, or the least.

        Without a gap that ends with an entry it is the first of `preferred`.
        """
        if self.closed == 0:
            return preferred[0]
        ends = sorted({end for gap in self._gaps for end in gap})
        changes: Counter[int] = Counter()
        for (low, high), count in self._gaps.items():
            changes[low] += count
            changes[high] -= count
        votes, most = 0, 0
        regions: list[tuple[int, int]] = []
        for end, following in zip(ends, [*ends[1:], UNBOUNDED], strict=True):
            votes += changes[end]
            if votes > most:
                most, regions = votes, []
            if votes == most:
                regions.append((end, following))
        for interval in preferred:
            if any(low <= interval < high for low, high in regions):
                return interval
        for low, high in regions:
            power = 1 << max(0, low - 1).bit_length()
            if low <= power < high:
                return power
        return max(0, regions[0][0])
