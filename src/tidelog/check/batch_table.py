"""The batches of one segment as columns: what an index entry is compared with.

| column | of each batch |
|---|---|
| `positions` | where it starts in the `.log`, ascending |
| `last_offsets` | its last offset, relative to the segment's base, ascending |

and of each batch that raised the segment's largest timestamp so far, the *rises*:

| column | |
|---|---|
| `timestamps` | what it became, ms, ascending |
| `risen_at` | the batch's number |

Eight bytes a batch, and no object for any: a segment of a gigabyte has a million small batches. The columns come from the batch
kernel, which is asked for an index with an entry for every batch (`EVERY_BATCH`). Those who verify indexes use it.
`longest_ascending` says which entries of an index are in order, so that one out of place does not condemn all others.
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
"""The `index_interval_bytes` of a walk that a table is made from."""


class BatchTable:
    """One segment's batches as columns. Batches are known by number, from 0 on."""

    def __init__(self, scanned: ScannedLog) -> None:
        """Take what a walk with the interval `EVERY_BATCH` found."""
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
        """The first batch of each leader epoch but the first."""

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, position: int) -> int | None:
        """Return the batch that starts at a byte position, None if none does."""
        batch = bisect_left(self.positions, position)
        return batch if batch < len(self.positions) and self.positions[batch] == position else None

    def ending_at(self, relative: int) -> int | None:
        """Return the batch whose last offset is base + `relative`, None without one."""
        batch = bisect_left(self.last_offsets, relative)
        return batch if batch < len(self.last_offsets) and self.last_offsets[batch] == relative else None

    def holding(self, relative: int) -> int:
        """Return the first batch that ends at or above base + `relative`; the number after the last one without any."""
        return bisect_left(self.last_offsets, relative)

    def beyond(self, position: int) -> int:
        """Return the first batch that starts after a byte position; the number after the last one without any."""
        return bisect_right(self.positions, position)

    def rise(self, timestamp: int) -> int | None:
        """Return the batch that made `timestamp` the largest so far, None if it never was that."""
        rise = bisect_left(self.timestamps, timestamp)
        return self.risen_at[rise] if rise < len(self.timestamps) and self.timestamps[rise] == timestamp else None

    def rise_up_to(self, batch: int) -> int:
        """Return the number of the last rise up to and with a batch, -1 if no timestamp was seen by then."""
        return bisect_right(self.risen_at, batch) - 1

    def next_rise(self, batch: int) -> int:
        """Return the first batch after `batch` that raises the largest timestamp; the number after the last one without any."""
        rise = bisect_right(self.risen_at, batch)
        return self.risen_at[rise] if rise < len(self.risen_at) else len(self)


def longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the places of a longest choice of `numbers` that ascends strictly."""
    if all(a < b for a, b in pairwise(numbers)):
        return list(range(len(numbers)))
    least: list[int] = []  # least[n]: the smallest number that a choice of n + 1 ends with
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
