"""The time index: KIP-33's map from a timestamp to an offset (spec §2.1, §2.3, §2.5, §2.6, §16).

=====  ======  ==========================================================================
 0     int64   T: the largest timestamp in the segment so far, epoch milliseconds
 8     int32   offset of the first batch with timestamp T, relative to the segment's base
=====  ======  ==========================================================================

T increases strictly, the offset never decreases. An entry (T, o) says that no batch up to and including the one with offset o has
a record later than T. So a search for a timestamp may start at the last entry whose T is at most that timestamp. The last entry,
written at the roll or the close, is the largest timestamp of the whole segment. o is the batch's last offset; for uncompressed v0
and v1 messages, older releases wrote the message's own offset (§16 has the table).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, IndexFullError, InvalidArgumentError, InvalidOffsetError
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET, IndexEntries
from tidelog.times import show_timestamp

_ENTRY = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp in epoch milliseconds, -1 for none, and an absolute offset."""

    timestamp: int
    offset: int


class TimeIndex(IndexEntries):
    """Timestamps and offsets of one segment."""

    entry_bytes = _ENTRY.size
    _known_columns: tuple[array[int], array[int]] | None = None

    @property
    def is_full(self) -> bool:
        """Whether an ordinary append would raise. The last slot is reserved for a rolled or closed segment's entry."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base) of an empty index."""
        return TimestampOffset(-1, self.base_offset) if self.entries == 0 else self.entry(self.entries - 1)

    def entry(self, slot: int) -> TimestampOffset:
        """Return an entry. Raises InvalidArgumentError if the slot has no entry."""
        timestamp, relative = _ENTRY.unpack(self._raw(slot))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most `timestamp`; (-1, base) if there is none."""
        if self._file is None:
            timestamps, offsets = self._columns()
            slot = bisect_right(timestamps, timestamp) - 1
            if slot < 0:
                return TimestampOffset(-1, self.base_offset)
            return TimestampOffset(timestamps[slot], self.base_offset + offsets[slot])
        slot = self.slot(timestamp)
        return TimestampOffset(-1, self.base_offset) if slot < 0 else self.entry(slot)

    def slot(self, timestamp: int) -> int:
        """Return the last slot whose timestamp is at most `timestamp`, -1 if there is none."""
        return bisect_right(range(self.entries), timestamp, key=self._timestamp) - 1

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is above the last entry's. Repeating the last entry is not an error.

        Raises IndexFullError (except for the entry of a roll or a close, `skip_full_check`), InvalidOffsetError for an offset
        below the last entry's, InvalidArgumentError for a timestamp below the last entry's, OffsetOverflowError.
        """
        if not skip_full_check and self.entries >= self.max_entries - 1:
            raise IndexFullError(f"a time index of {self.max_entries} entries is full", path=self.path)
        self._require_memory()
        relative = offset - self.base_offset
        last_timestamp = -1
        if self.entries:
            last_timestamp, last_relative = _ENTRY.unpack_from(self._data, len(self._data) - 12)
            if relative < last_relative:
                expected = f"{self.base_offset + last_relative} or more"
                raise InvalidOffsetError(
                    "a time index does not accept decreasing offsets", path=self.path, found=offset, expected=expected
                )
            if timestamp < last_timestamp:
                expected = f"{show_timestamp(last_timestamp)} or later"
                raise InvalidArgumentError(
                    "a time index does not accept decreasing timestamps",
                    path=self.path,
                    found=show_timestamp(timestamp),
                    expected=expected,
                )
        if timestamp > last_timestamp:
            if not 0 <= relative <= MAX_RELATIVE_OFFSET:
                self.relative_offset(offset)
            self._append(_ENTRY.pack(timestamp, relative))
            if self.entries > self.max_entries:
                self.max_entries = self.entries

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose offset is at or above `offset`."""
        self.keep(self.entries_below(offset))

    def entries_below(self, offset: int) -> int:
        """Return how many entries have an offset below `offset`."""
        return bisect_left(range(self.entries), offset - self.base_offset, key=self._relative)

    def _columns(self) -> tuple[array[int], array[int]]:
        """Return the timestamps and relative offsets of all entries in memory, as arrays that can be searched without
        Python code.
        """
        columns = self._known_columns
        if columns is None:
            columns = self._known_columns = (array("q"), array("i"))
        known = len(columns[0])
        if known < self.entries:
            for timestamp, relative in _ENTRY.iter_unpack(bytes(memoryview(self._data)[known * 12 :])):
                columns[0].append(timestamp)
                columns[1].append(relative)
        return columns

    def _forget_columns(self) -> None:
        self._known_columns = None

    def _timestamp(self, slot: int) -> int:
        timestamp: int = self._unpack(_ENTRY, slot)[0]
        return timestamp

    def _relative(self, slot: int) -> int:
        relative: int = self._unpack(_ENTRY, slot)[1]
        return relative

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the last timestamp is below the first, the last offset is below the base offset, or the
        length is invalid.
        """
        if self.entries:
            first, last = self.entry(0), self.last_entry
            if last.timestamp < first.timestamp:
                raise CorruptIndexError(
                    "the timestamps of a time index decrease",
                    path=self.path,
                    found=show_timestamp(last.timestamp),
                    expected=f"at least {show_timestamp(first.timestamp)}",
                )
            if last.offset < self.base_offset:
                raise CorruptIndexError(
                    "a time index has an entry below its segment's base offset",
                    path=self.path,
                    found=last.offset,
                    expected=f">= {self.base_offset}",
                )
        super().sanity_check()
