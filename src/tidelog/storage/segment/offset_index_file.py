"""The writable `.index` of a segment: positions of batches by offset. `index_file` has the file itself (spec §2)."""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats.offset_index import OffsetIndex, OffsetPosition
from tidelog.storage.segment.index_cache import in_memory
from tidelog.storage.segment.index_file import IndexFile


class OffsetIndexFile(IndexFile[OffsetIndex]):
    """Offsets and positions of one segment."""

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int) -> None:
        super().__init__(path, base_offset, max_index_bytes, OffsetIndex)

    @property
    def is_full(self) -> bool:
        """Whether the next append would raise IndexFullError."""
        index = self._live_entries or self._with_room()
        return index.entries >= index.max_entries

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base of an empty index."""
        return self._at_rest_closed(self._readable().last_offset)

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry; (base, 0) of an empty index."""
        index = self._readable()
        if index.entries == 0:
            return OffsetPosition(self.base_offset, 0)
        return self._at_rest_closed(index.entry(index.entries - 1))

    def entry(self, slot: int) -> OffsetPosition:
        """Return an entry. Raises InvalidArgumentError beyond the last one."""
        return self._at_rest_closed(self._readable().entry(slot))

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is at most `offset`; (base, 0) if there is none."""
        if self._live_entries is not None:
            return self._live_entries.lookup(offset)
        return self._at_rest_closed(in_memory(self._readable()).lookup(offset))

    def fetch_upper_bound_offset(self, start: OffsetPosition, size_bytes: int) -> OffsetPosition | None:
        """Return the first entry whose position is at or after `start.position + size_bytes`, or None if there is none."""
        entries = self._live_entries or in_memory(self._readable())
        return self._at_rest_closed(entries.fetch_upper_bound_offset(start, size_bytes))

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises IndexFullError, InvalidOffsetError, OffsetOverflowError, StorageError; after an error it was not
        added.
        """
        index = self.live()
        index.append(offset, position)
        try:
            self.write_entries()
        except StorageError:
            self.keep(index.entries - 1)
            raise
