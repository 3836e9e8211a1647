"""Infers the index.interval.bytes of a segment's index, and where the broker was restarted, from the gaps between entries.

An entry is due when its batch starts more than the interval after the previously indexed one (spec §4.2). So two consecutive
entries bound the interval: the second entry's batch is farther than the interval from the first entry's, and the batch before it
is not:

    low <= interval < high

Each such gap votes for the numbers between its bounds, and the numbers with the most votes win (`IntervalVotes`). Gaps caused by
a restart or by damage are outvoted. Among equal votes a power of two wins, otherwise the roundest number. A number that is likely
for another reason wins even with slightly fewer votes. A power of two also wins with slightly fewer votes over a number that is
not round.

A restart resets the count of bytes since the last index entry, so the next entry comes later than usual (spec §4.7). Such a gap
looks like damage, but differs as follows (`Starts`):

| | |
|---|---|
| a leader epoch begins, or a producer snapshot was taken at that offset | a restart there is *known* |
| a restart would not raise the epoch (v0, v1, older releases), and the time index has the largest timestamp there | also known |
| the time index has an entry that no entry of the offset index explains | the log may have been *closed* near it |
| the time index lacks an entry that an index entry there would have caused | nothing was *indexed* there: both files agree |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import chain

from tidelog.check.batch_table import BatchTable
from tidelog.check.time_index import TimeEntry

UNBOUNDED = 2**62
GAPS_A_VOTE = 20
"""A likely number wins even with one vote less per this many gaps."""
MOST_GAPS = 20_000
"""The largest number of gaps that are checked; more would not change the result."""


class IntervalVotes:
    """Collects the gaps between entries, and finds the interval that explains most of them."""

    def __init__(self) -> None:
        self._gaps: Counter[tuple[int, int]] = Counter()
        self.count = 0
        self.closed = 0
        """The number of gaps that end with an entry."""

    def add(self, low: int, high: int = UNBOUNDED) -> None:
        """Add a gap that the intervals in [low, high) explain. Leave out `high` for the gap after the last entry."""
        if low < high and self.count < MOST_GAPS:
            self._gaps[low, high] += 1
            self.count += 1
            self.closed += high != UNBOUNDED

    def explained(self, interval_bytes: int) -> int:
        """Return the number of gaps that an interval explains."""
        return sum(count for (low, high), count in self._gaps.items() if low <= interval_bytes < high)

    def best(self, preferred: Sequence[int]) -> int:
        """Return the first of `preferred` that explains almost as many gaps as any number; else the roundest number that explains
        most gaps.

        If no gap ends with an entry, return the first of `preferred`.
        """
        if self.closed == 0:
            return preferred[0]
        low, high, most = self._most_voted()
        enough = most - self.count // GAPS_A_VOTE
        # Gaps from single appends of many batches bound the interval from above only, so the largest is the likeliest.
        powers = [1 << bit for bit in reversed(range(31))]
        multiples = [-(-low // step) * step for step in (1_000_000, 100_000, 10_000, 1000, 500, 100, 50, 10, 1)]
        return next(
            chain(
                (interval for interval in preferred if self.explained(interval) >= enough),
                (power for power in powers if self.explained(power) == most),
                (multiple for multiple in multiples if multiple < high and multiple % 100 == 0),
                # A broker restart makes gaps that an interval slightly above the real one explains.
                (power for power in powers if self.explained(power) >= enough),
                (multiple for multiple in multiples if multiple < high),
            )
        )

    def _most_voted(self) -> tuple[int, int, int]:
        """Return the lowest range of intervals with the most votes, and the number of votes."""
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


# --- where the broker was started again


_MOST_BATCHES = 100_000


class Starts:
    """The evidence of broker restarts in one segment. Batches are given by number. A restart is identified by the batch after
    it.
    """

    def __init__(
        self,
        table: BatchTable,
        entries: Sequence[TimeEntry],
        explained: Iterable[int],
        offsets: Iterable[int],
        is_silent: Callable[[int], bool],
    ) -> None:
        """Collect the evidence. `entries` are those of the time index; a wrong entry has the `form` None.

        `explained` are the rises that offset index entries explain; `offsets` are the snapshots' offsets. `is_silent` returns
        whether a restart before a batch would leave the leader epoch unchanged.
        """
        self._table = table
        right = [entry for entry in entries if entry.form is not None]
        self._is_sound = len(right) == len(entries)
        self._times: Set[int] = {entry.timestamp for entry in right}
        self._is_silent = is_silent
        self._known = {*table.epoch_starts}
        self._known |= {table.holding(offset - table.base_offset) for offset in offsets if offset > table.base_offset}
        self._closed = _after_closes(table, right, {table.timestamps[rise] for rise in explained if rise >= 0})

    def is_known(self, batch: int) -> bool:
        """Whether a restart before a batch is known, or would have left no trace."""
        return batch in self._known or (self._is_noted(batch - 1) and self._is_silent(batch))

    def is_likely(self, batch: int) -> bool:
        """Whether a restart before a batch is known, or the log may have been closed there."""
        return batch in self._closed or self.is_known(batch)

    def is_not_indexed(self, batch: int, since: int, until: int) -> bool:
        """Whether the time index shows that a batch was not indexed.

        `since` is the previously indexed batch (-1: none), `until` the next one, or the number after the last batch.
        """
        table = self._table
        if self.would_not_show(batch, since):
            return False  # The time index would not have an entry for the batch.
        # A time index with missing entries proves nothing.
        return self._is_sound and not self._is_noted(batch) and self._is_noted(min(until, len(table) - 1))

    def would_not_show(self, batch: int, since: int) -> bool:
        """Whether the largest timestamp did not rise between `since` and `batch`. The time index then says nothing about
        the batch.
        """
        table = self._table
        return table.rise_up_to(batch) == (table.rise_up_to(since) if since >= 0 else -1)

    def _is_noted(self, batch: int) -> bool:
        """Whether the time index has the largest timestamp up to and including a batch. True if no batch up to there has
        a timestamp.
        """
        rise = self._table.rise_up_to(batch)
        return rise < 0 or self._table.timestamps[rise] in self._times


def _after_closes(table: BatchTable, entries: Sequence[TimeEntry], explained: Set[int]) -> set[int]:
    found: set[int] = set()
    for entry in entries:
        if entry.batch >= 0 and entry.timestamp not in explained:
            found.update(range(entry.batch + 1, table.next_rise(entry.batch) + 1))
            if len(found) > _MOST_BATCHES:
                break
    return found
