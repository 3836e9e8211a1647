"""The offset index: the position in the ``.log`` to start from for an offset (spec §2.1, §2.3, §2.4, §2.6).

=====  ======  =======================================================
 0     int32   offset of an entry, relative to the segment's base
 4     int32   position in the ``.log`` of a batch
=====  ======  =======================================================

Entries are sparse (one per ``index.interval.bytes``) and strictly increasing. The offset is the last offset of the
batch at the position. Kafka ≤ 1.1 wrote the batch's first offset. A follower of Kafka ≤ 3.9.0 wrote one entry for several batches
appended at once, with the last batch's offset and the first batch's position. In every case all batches before the position end
below the entry's offset.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, IndexFullError, InvalidOffsetError
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET, IndexEntries

_ENTRY = struct.Struct(">ii")


class OffsetPosition(NamedTuple):
    """An absolute offset and a byte position in the segment's ``.log``."""

    offset: int
    position: int


class OffsetIndex(IndexEntries):
    """Offsets and positions of one segment."""

    entry_bytes = _ENTRY.size
    _known_columns: tuple[array[int], array[int]] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the next append would raise."""
        return self.entries >= self.max_entries

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base of an empty index."""
        return self.base_offset if self.entries == 0 else self.entry(self.entries - 1).offset

    def entry(self, slot: int) -> OffsetPosition:
        """Return an entry. Raises InvalidArgumentError if the slot has no entry."""
        relative, position = _ENTRY.unpack(self._raw(slot))
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is at most `offset`; (base, 0) if there is none."""
        if self._file is None:
            offsets, positions = self._columns()
            slot = bisect_right(offsets, offset - self.base_offset) - 1
            if slot < 0:
                return OffsetPosition(self.base_offset, 0)
            return OffsetPosition(self.base_offset + offsets[slot], positions[slot])
        slot = self.slot(offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def fetch_upper_bound_offset(self, start: OffsetPosition, size_bytes: int) -> OffsetPosition | None:
        """Return the first entry whose position is at or after `start.position + size_bytes`, None if there is none."""
        slot = self.entries_before(start.position + size_bytes)
        return self.entry(slot) if slot < self.entries else None

    def entries_before(self, position: int) -> int:
        """Return how many entries point before a byte position."""
        return bisect_left(range(self.entries), position, key=self._position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises IndexFullError, InvalidOffsetError if `offset` is not above the last entry's,
        OffsetOverflowError.
        """
        if self.entries >= self.max_entries:
            raise IndexFullError(f"an offset index of {self.max_entries} entries is full", path=self.path)
        self._require_memory()
        relative = offset - self.base_offset
        if self.entries and relative <= _ENTRY.unpack_from(self._data, len(self._data) - 8)[0]:
            raise InvalidOffsetError(
                "an offset index accepts only increasing offsets",
                path=self.path,
                found=offset,
                expected=f"more than {self.last_offset}",
            )
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            self.relative_offset(offset)
        self._append(_ENTRY.pack(relative, position))

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        slot = self.slot(offset)
        self.keep(slot if slot >= 0 and self.entry(slot).offset == offset else slot + 1)

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the last offset is below the base offset or the length is invalid (spec §2.7).

        Unlike Kafka, also raise it if the last entry's offset is below the first entry's.
        """
        if self.entries:
            first, last = self.entry(0).offset, self.last_offset
            if last < self.base_offset:
                raise CorruptIndexError(
                    "an offset index has an entry below its segment's base offset",
                    path=self.path,
                    found=last,
                    expected=f">= {self.base_offset}",
                )
            if last < first:
                raise CorruptIndexError(
                    "the offsets of an offset index decrease", path=self.path, found=last, expected=f">= {first}"
                )
        super().sanity_check()

    def slot(self, offset: int) -> int:
        """Return the last slot whose offset is at most `offset`, -1 if there is none."""
        return bisect_right(range(self.entries), offset - self.base_offset, key=self._relative) - 1

    def _columns(self) -> tuple[array[int], array[int]]:
        """Return the relative offsets and the positions of all entries in memory, as arrays that can be searched without
        Python code.
        """
        columns = self._known_columns
        if columns is None:
            columns = self._known_columns = (array("i"), array("i"))
        known = len(columns[0])
        if known < self.entries:
            fields = array("i", bytes(memoryview(self._data)[known * 8 :]))
            if sys.byteorder == "little":
                fields.byteswap()
            columns[0].extend(fields[::2])
            columns[1].extend(fields[1::2])
        return columns

    def _forget_columns(self) -> None:
        self._known_columns = None

    def _relative(self, slot: int) -> int:
        relative: int = self._unpack(_ENTRY, slot)[0]
        return relative

    def _position(self, slot: int) -> int:
        position: int = self._unpack(_ENTRY, slot)[1]
        return position
