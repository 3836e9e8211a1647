"""index.interval.bytes, found from what was indexed with it.

An entry is due when its batch starts more than the interval behind the one that was indexed before (spec §4.2). So two entries
that follow one another bound the interval: the batch just before the second was not far enough yet, the second was.

    low <= interval < high

Each such gap votes for the numbers between its bounds, and the numbers with most votes win. Gaps over which the broker was
started again, or that damage made, are outvoted. People configure round numbers: one that is likely wins with a few votes less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

UNBOUNDED = 2**62
GAPS_A_VOTE = 20
"""A likely number may have one vote less than another for each so many gaps."""
MOST_GAPS = 20_000
"""Gaps that are looked at; more of them tell nothing new."""


class IntervalVotes:
    """Collects gaps."""

    def __init__(self) -> None:
        self._gaps: Counter[tuple[int, int]] = Counter()
        self.count = 0
        self.closed = 0
        """Gaps that end with an entry."""

    def add(self, low: int, high: int = UNBOUNDED, count: int = 1) -> None:
        """Take gaps that intervals in [low, high) explain; `high` is unbounded behind the last entry."""
        if low < high and count > 0 and self.count < MOST_GAPS:
            self._gaps[low, high] += count
            self.count += count
            self.closed += count if high != UNBOUNDED else 0

    def explained(self, interval_bytes: int) -> int:
        """Return how many gaps an interval explains."""
        return sum(count for (low, high), count in self._gaps.items() if low <= interval_bytes < high)

    def best(self, preferred: Sequence[int]) -> int:
        """Return the interval that explains most gaps, or the first of `preferred` or power of two that explains almost as many.

        Without a gap that ends with an entry it is the first of `preferred`.
        """
        if self.closed == 0:
            return preferred[0]
        region, most = self._most_voted()
        for interval in (*preferred, *(1 << bit for bit in range(31))):
            if self.explained(interval) >= most - self.count // GAPS_A_VOTE:
                return interval
        return max(0, region)

    def _most_voted(self) -> tuple[int, int]:
        """Return the least interval with most votes, and how many it has."""
        ends = sorted({end for gap in self._gaps for end in gap})
        changes: Counter[int] = Counter()
        for (low, high), count in self._gaps.items():
            changes[low] += count
            changes[high] -= count
        votes, most, best = 0, 0, 0
        for end in ends:
            votes += changes[end]
            if votes > most:
                most, best = votes, end
        return best, most
