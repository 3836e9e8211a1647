"""Where the owner of a segment may have been stopped and started again, as far as anything tells.

A start resets the count of bytes since the last index entry, so that the next one comes later than it would (spec §4.7). The
gap looks like one that damage made. What tells them apart:

| | |
|---|---|
| a leader epoch begins, or a producer snapshot was taken at that offset | a start there is *known* |
| nothing would raise the epoch (v0, v1, older releases), and the largest timestamp then is in the time index | the same |
| the time index has an entry that no entry of the offset index explains | the log may have been *closed* thereabouts |
| the time index has no entry where the largest timestamp would have been noted | nothing was *indexed* there: both files agree |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from tidelog.check.indexes.batch_table import BatchTable
from tidelog.check.indexes.time_entry_forms import TimeEntry

_MOST_BATCHES = 100_000


class Starts:
    """What is known of one segment. Batches are told by number; a start is before a batch."""

    def __init__(
        self,
        table: BatchTable,
        entries: Sequence[TimeEntry],
        explained: Iterable[int],
        offsets: Iterable[int],
        is_silent: Callable[[int], bool],
    ) -> None:
        """Take the entries of the time index, of which `form` is None where they are wrong.

        `explained` are the rises that entries of the offset index explain, `offsets` those of snapshots, and `is_silent` says
        whether a start before a batch would not have raised the leader epoch.
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
        """Whether a start before a batch is known, or would not show."""
        return batch in self._known or (self._is_noted(batch - 1) and self._is_silent(batch))

    def is_likely(self, batch: int) -> bool:
        """Whether a start before a batch is known, or the log may have been closed there."""
        return batch in self._closed or self.is_known(batch)

    def is_not_indexed(self, batch: int, since: int, until: int) -> bool:
        """Whether the time index tells that a batch was not indexed.

        `since` is the batch that was indexed before (-1: none), `until` the next one, or the number behind the last batch.
        """
        table = self._table
        if self.would_not_show(batch, since):
            return False  # There was nothing to note.
        # A time index that has lost entries tells nothing.
        return self._is_sound and not self._is_noted(batch) and self._is_noted(min(until, len(table) - 1))

    def would_not_show(self, batch: int, since: int) -> bool:
        """Whether the largest timestamp had not risen since `since`, so that the time index says nothing of a batch."""
        table = self._table
        return table.rise_up_to(batch) == (table.rise_up_to(since) if since >= 0 else -1)

    def _is_noted(self, batch: int) -> bool:
        """Whether the largest timestamp up to and with a batch is in the time index; also if there is none."""
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
