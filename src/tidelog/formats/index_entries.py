"""Fixed-size entries in a file or in memory: the common part of the offset index and the time index (spec §2).

An index has no header, count or checksum: the number of entries follows from the length. A live index is preallocated: its length
is its capacity, and zeros follow the entries. When Kafka truncates, it only moves a counter back, so stale entries may lie
between the last valid entry and the zeros. Therefore

* in a file, the zero tail is found by bisection (a few reads of one entry) and left out;
* the content of an entry is only a hint: the segment compares it with the batch that it points to.

In memory (`create`, `from_bytes`) the same class enforces the append rules of a segment that is being written.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Self

from tidelog.errors import CorruptIndexError, InvalidArgumentError, OffsetOverflowError, SegmentChangedError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath

MAX_RELATIVE_OFFSET = 2**31 - 1


class IndexEntries:
    """A sequence of entries of `entry_bytes` each. Subclasses define what an entry means."""

    entry_bytes: ClassVar[int]

    twin: Any = None
    """A copy of the entries in memory, for callers that read the file repeatedly; None without one."""
    look_ups = 0
    """The number of look-ups that `index_cache` has made in the file."""

    def __init__(self, base_offset: int, *, file: ReadOnlyFile | None, data: bytearray, max_index_bytes: int) -> None:
        self.base_offset = base_offset
        self._file = file
        self._data = data
        self.length_bytes = len(data)
        self.max_entries = max_index_bytes // self.entry_bytes
        self.entries = len(data) // self.entry_bytes
        if file is not None:
            self.length_bytes = file.size_bytes()
            self.max_entries = self.length_bytes // self.entry_bytes
            self.entries = self._count_entries()

    @classmethod
    def open(cls, path: FilePath | ReadOnlyFile, base_offset: int) -> Self:
        """Open an index file for look-ups. Each look-up reads only a few entries.

        Raises SegmentChangedError if there is no such file.
        """
        return cls(
            base_offset, file=path if isinstance(path, ReadOnlyFile) else ReadOnlyFile(path), data=bytearray(), max_index_bytes=0
        )

    @classmethod
    def create(cls, base_offset: int, max_index_bytes: int) -> Self:
        """Create an empty index in memory for at most `max_index_bytes`, rounded down to whole entries."""
        if max_index_bytes < cls.entry_bytes:
            raise InvalidArgumentError(
                "the maximum size of an index is too small for one entry", found=max_index_bytes, expected=cls.entry_bytes
            )
        return cls(base_offset, file=None, data=bytearray(), max_index_bytes=max_index_bytes)

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes | bytearray) -> Self:
        """Return an index in memory with the content of a file that was closed cleanly: every slot is an entry, and the index is
        full (spec §2.2).
        """
        return cls(base_offset, file=None, data=bytearray(data), max_index_bytes=len(data))

    @property
    def path(self) -> FilePath | None:
        """The path of the index file; None for an index in memory."""
        return None if self._file is None else self._file.path

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from the file so far."""
        return 0 if self._file is None else self._file.bytes_read

    @property
    def size_bytes(self) -> int:
        """The size of the entries in bytes, without a preallocated tail."""
        return self.entries * self.entry_bytes

    def to_bytes(self) -> bytes:
        """Return the entries' bytes, as in the file of a closed index."""
        return self._read(0, self.size_bytes)

    @property
    def raw(self) -> bytearray:
        """The bytes of an index in memory."""
        return self._data

    def entries_from(self, slot: int) -> bytes:
        """Return the bytes of the entries from `slot` on."""
        position = slot * self.entry_bytes
        return bytes(self._data[position:]) if self._file is None else self._read(position, self.size_bytes - position)

    def close(self) -> None:
        """Close the file; a later look-up opens it again."""
        if self._file is not None:
            self._file.close()

    def resize(self, new_size_bytes: int) -> bool:
        """Change the capacity of an index in memory. Return False if the capacity is unchanged."""
        new_max = new_size_bytes // self.entry_bytes
        if new_max == self.max_entries:
            return False
        self.max_entries = new_max
        if self.entries > new_max:
            self.keep(new_max)
        return True

    def trim_to_valid_size(self) -> bool:
        """Release the space after the entries, as a roll and a close do."""
        return self.resize(self.size_bytes)

    def truncate(self) -> None:
        """Remove every entry."""
        self.keep(0)

    def relative_offset(self, offset: int) -> int:
        """Return `offset` relative to the base. Raises OffsetOverflowError if an int32 cannot hold it."""
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise OffsetOverflowError(
                f"offset {offset} overflows the segment with base offset {self.base_offset}",
                found=relative,
                expected=f"0..{MAX_RELATIVE_OFFSET}",
                path=self.path,
            )
        return relative

    def _require_memory(self) -> None:
        if self._file is not None:
            raise InvalidArgumentError("cannot append to an index that is open for reading", path=self.path)

    def _append(self, raw: bytes) -> None:
        self._data += raw
        self.entries += 1
        self.length_bytes += len(raw)

    def keep(self, entries: int) -> None:
        """Keep the first `entries` entries of an index in memory, and remove the others."""
        if self._file is not None:
            raise InvalidArgumentError("cannot truncate an index that is open for reading", path=self.path)
        del self._data[entries * self.entry_bytes :]
        self._forget_columns()
        self.entries = entries
        self.length_bytes = len(self._data)

    def _forget_columns(self) -> None:
        """Drop what a subclass has derived from the entries in memory. Called when entries are removed."""

    def _unpack(self, entry: struct.Struct, slot: int) -> tuple[Any, ...]:
        """Return the fields of an existing slot."""
        if self._file is None:
            return entry.unpack_from(self._data, slot * entry.size)
        return entry.unpack(self._read(slot * entry.size, entry.size))

    def _raw(self, slot: int) -> bytes:
        if not 0 <= slot < self.entries:
            raise InvalidArgumentError(f"an index of {self.entries} entries has no entry {slot}", path=self.path)
        return self._read(slot * self.entry_bytes, self.entry_bytes)

    def _read(self, position: int, length: int) -> bytes:
        if self._file is None:
            return bytes(self._data[position : position + length])
        data = self._file.read(position, length)
        if len(data) < length:
            raise SegmentChangedError("an index was truncated while it was being read", path=self.path, position=position)
        return data

    def _count_entries(self) -> int:
        """Return the number of slots before the zero tail. Looks at the last slot first, then bisects.

        A valid entry of zeros in slot 0 (timestamp 0 at the base) counts if another entry follows, because slot 0 is probed only
        if slot 1 is zero.
        """
        slots = self.length_bytes // self.entry_bytes
        zero = bytes(self.entry_bytes)
        if slots == 0 or self._read((slots - 1) * self.entry_bytes, self.entry_bytes) != zero:
            return slots
        low, high = 0, slots - 1  # slot `high` is zero, slots below `low` are not
        while low < high:
            middle = (low + high) // 2
            if self._read(middle * self.entry_bytes, self.entry_bytes) == zero:
                high = middle
            else:
                low = middle + 1
        return low

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the file's length is invalid. Subclasses also check entries (spec §2.7)."""
        if self.length_bytes % self.entry_bytes:
            raise CorruptIndexError(
                "an index has an invalid length",
                path=self.path,
                found=f"{self.length_bytes} bytes",
                expected=f"a multiple of {self.entry_bytes}",
            )
