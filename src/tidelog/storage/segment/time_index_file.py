"""The writable `.timeindex` of a segment: the first offset at a time. `index_file` has the file itself (spec §2)."""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.storage.segment.index_cache import in_memory
from tidelog.storage.segment.index_file import IndexFile


class TimeIndexFile(IndexFile[TimeIndex]):
    """Timestamps and offsets of one segment."""

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int) -> None:
        super().__init__(path, base_offset, max_index_bytes, TimeIndex)

    @property
    def is_full(self) -> bool:
        """Whether an ordinary append would raise IndexFullError: the last slot is reserved for the entry that is
        written when the segment is rolled or closed.
        """
        index = self._live_entries or self._with_room()
        return index.entries >= index.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base) of an empty index."""
        return self._at_rest_closed(self._readable().last_entry)

    def entry(self, slot: int) -> TimestampOffset:
        """Return an entry. Raises InvalidArgumentError beyond the last one."""
        return self._at_rest_closed(self._readable().entry(slot))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most `timestamp`; (-1, base) if there is none."""
        if self._live_entries is not None:
            return self._live_entries.lookup(timestamp)
        return self._at_rest_closed(in_memory(self._readable()).lookup(timestamp))

    def slot(self, timestamp: int) -> int:
        """Return the last slot whose timestamp is at most `timestamp`; -1 if there is none."""
        entries = self._live_entries or in_memory(self._readable())
        return self._at_rest_closed(entries.slot(timestamp))

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is above the last one's; a repeated entry is ignored.

        Raises IndexFullError (unless `skip_full_check`: the entry of a roll or a close), InvalidOffsetError,
        InvalidArgumentError, OffsetOverflowError, StorageError; after an error the entry was not added.
        """
        if skip_full_check and self._live_entries is None and self.last_entry == (timestamp, offset):
            return  # A close adds the same entry again.
        index = self.live()
        before = index.entries
        index.maybe_append(timestamp, offset, skip_full_check)
        try:
            self.write_entries()
        except StorageError:
            self.keep(before)
            raise
