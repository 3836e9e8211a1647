"""The batches of one segment as columns. Index entries are compared with them.

| column | of each batch |
|---|---|
| `positions` | its start in the `.log`, ascending |
| `last_offsets` | its last offset, relative to the segment's base, ascending |

and for each *rise*, a batch that raised the segment's largest timestamp so far:

| column | |
|---|---|
| `timestamps` | the new largest timestamp, ms, ascending |
| `risen_at` | the batch's number |

A batch needs eight bytes and no Python object, because a 1 GB segment may have a million small batches. The batch kernel computes
the columns as an index with an entry for every batch (`EVERY_BATCH`). `longest_ascending` selects the index
entries that are in order, so that a single misplaced entry does not invalidate the others.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from struct import iter_unpack

from tidelog.storage.loading.log_scan import ScannedLog

EVERY_BATCH = -1
"""The `index_interval_bytes` with which a log is walked to build a table."""


class BatchTable:
    """One segment's batches as columns. Batches are numbered from 0."""

    def __init__(self, scanned: ScannedLog) -> None:
        """Build the table from a walk with the interval `EVERY_BATCH`."""
        self.base_offset = scanned.base_offset
        self.end_position = scanned.valid_bytes
        self.next_offset = scanned.next_offset
        columns = array("i")
        columns.frombytes(scanned.offset_entries)
        if sys.byteorder == "little":
            columns.byteswap()
        self.last_offsets = columns[0::2]
        self.positions = columns[1::2]
        self.timestamps = array("q")
        self.risen_at = array("i")
        for timestamp, relative in iter_unpack(">qi", scanned.time_entries):
            self.timestamps.append(timestamp)
            self.risen_at.append(bisect_left(self.last_offsets, relative))
        self.epoch_starts = [self.holding(entry.start_offset - self.base_offset) for entry in scanned.epochs[1:]]
        """The first batch of each leader epoch, except the first epoch."""

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, position: int) -> int | None:
        """Return the number of the batch that starts at a byte position, None if no batch does."""
        batch = bisect_left(self.positions, position)
        return batch if batch < len(self.positions) and self.positions[batch] == position else None

    def ending_at(self, relative: int) -> int | None:
        """Return the number of the batch whose last offset is base + `relative`, None if there is none."""
        batch = bisect_left(self.last_offsets, relative)
        return batch if batch < len(self.last_offsets) and self.last_offsets[batch] == relative else None

    def holding(self, relative: int) -> int:
        """Return the number of the first batch that ends at or above base + `relative`; if none does, the number of batches."""
        return bisect_left(self.last_offsets, relative)

    def beyond(self, position: int) -> int:
        """Return the number of the first batch that starts after a byte position; if none does, the number of batches."""
        return bisect_right(self.positions, position)

    def rise(self, timestamp: int) -> int | None:
        """Return the number of the batch that made `timestamp` the largest so far, None if it never was the largest."""
        rise = bisect_left(self.timestamps, timestamp)
        return self.risen_at[rise] if rise < len(self.timestamps) and self.timestamps[rise] == timestamp else None

    def rise_up_to(self, batch: int) -> int:
        """Return the number of the last rise at or before a batch, -1 if there is none."""
        return bisect_right(self.risen_at, batch) - 1

    def next_rise(self, batch: int) -> int:
        """Return the number of the first batch after `batch` that raises the largest timestamp; if none does, the number
        of batches.
        """
        rise = bisect_right(self.risen_at, batch)
        return self.risen_at[rise] if rise < len(self.risen_at) else len(self)


def longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the indexes of a longest strictly increasing subsequence of `numbers`."""
    if all(a < b for a, b in pairwise(numbers)):
        return list(range(len(numbers)))
    least: list[int] = []  # least[n]: the smallest last number of an increasing subsequence of length n + 1
    places: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(least, number)
        if length == len(least):
            least.append(number)
            places.append(place)
        else:
            least[length] = number
            places[length] = place
        before.append(places[length - 1] if length else -1)
    chosen = []
    place = places[-1] if places else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    return chosen[::-1]
