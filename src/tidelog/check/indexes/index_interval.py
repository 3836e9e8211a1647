"""index.interval.bytes, found from what was indexed with it.

An entry is due when its batch starts more than the interval behind the one that was indexed before (spec §4.2). So two entries
that follow one another bound the interval: the batch just before the second was not far enough yet, the second was.

    low <= interval < high

Each such gap votes for the numbers between its bounds, and the numbers with most votes win. Gaps over which the broker was
started again, or that damage made, are outvoted. Of those with equal votes a power of two wins, else the roundest; a number that
is likely for another reason wins with a few votes less.
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

    def add(self, low: int, high: int = UNBOUNDED) -> None:
        """Take a gap that intervals in [low, high) explain; `high` is unbounded behind the last entry."""
        if low < high and self.count < MOST_GAPS:
            self._gaps[low, high] += 1
            self.count += 1
            self.closed += high != UNBOUNDED

    def explained(self, interval_bytes: int) -> int:
        """Return how many gaps an interval explains."""
        return sum(count for (low, high), count in self._gaps.items() if low <= interval_bytes < high)

    def best(self, preferred: Sequence[int]) -> int:
        """Return the first of `preferred` that explains almost as many gaps as any, else the roundest number that explains most.

        Without a gap that ends with an entry it is the first of `preferred`.
        """
        if self.closed == 0:
            return preferred[0]
        low, high, most = self._most_voted()
        for interval in preferred:
            if self.explained(interval) >= most - self.count // GAPS_A_VOTE:
                return interval
        # What one append of many batches explains bounds the interval from above only: then the largest is the likeliest.
        for power in (1 << bit for bit in reversed(range(31))):
            if self.explained(power) == most:
                return power
        multiples = (-(-low // step) * step for step in (1_000_000, 100_000, 10_000, 1000, 500, 100, 50, 10, 1))
        return next(multiple for multiple in multiples if multiple < high)

    def _most_voted(self) -> tuple[int, int, int]:
        """Return where the least intervals with most votes begin and end, and how many votes they have."""
        ends = sorted({end for gap in self._gaps for end in gap})
        changes: Counter[int] = Counter()
        for (low, high), count in self._gaps.items():
            changes[low] += count
            changes[high] -= count
        votes, most, low, high = 0, 0, 0, UNBOUNDED
        for end, following in zip(ends, [*ends[1:], UNBOUNDED], strict=True):
            votes += changes[end]
            if votes > most:
                most, low, high = votes, end, following
        return low, high, most
