"""The writable `.index` and `.timeindex` of a segment: entries in memory, and their sparse file (spec §2).

`formats.offset_index` and `formats.time_index` define the entries and which entries are accepted. This module owns the files.

| state | entries | the file | descriptors |
|---|---|---|---|
| idle | unknown | unknown, may not exist | none |
| live | in memory | the same, then zeros up to the index's capacity | one |
| at rest | in the file, found by bisection with `pread` (frequently used ones: `index_cache`) | trimmed to its entries | none |

An index is idle until it is needed: only then is its file created, with its full length (`segment.index.bytes`, rounded down to
whole entries), or opened. The index becomes live with the first change, and is at rest after the roll.

Invariants
    * Kafka stores entries in a mapped file, which on a full disk kills the process. Here they are written by `pwrite`, and a
      failure is an error: the entry then exists neither in memory nor on disk.
    * After the entries the file has only zeros: a truncation overwrites what it removes.
    * As in Kafka, an existing file's length is its capacity until `resize` changes that, so a trimmed index is full. Unlike in
      Kafka, a tail of zeros (of an index that was copied or left while live) does not count as entries.

`offset_index_file` and `time_index_file` have the look-ups. Each `LogSegment` has both indexes; recovery replaces their contents.
Not thread-safe.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Generic, TypeVar

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.index_entries import IndexEntries
from tidelog.formats.time_index import TimeIndex
from tidelog.storage.segment.descriptors import open_file
from tidelog.storage.segment.log_file import delete_file, write_rest

_Entries = TypeVar("_Entries", bound=IndexEntries)
_Answer = TypeVar("_Answer")


class IndexFile(Generic[_Entries]):
    """The part that both indexes have in common. `max_index_bytes` is the limit of a live index. Use a subclass."""

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int, kind: type[_Entries]) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_index_bytes = max_index_bytes
        self._kind = kind
        self._live_entries: _Entries | None = None
        self._entries_at_rest: _Entries | None = None
        self._written = 0
        self._fd = -1
        self._is_written = False
        self._is_synced = False
        self._grows_later = False
        self.is_own = False
        """Whether this process has made all of its entries."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __del__(self) -> None:
        self.close_handlers()

    # --- content; each of these creates the file if it is missing

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self._readable().entries

    @property
    def max_entries(self) -> int:
        """The most entries that fit."""
        return self._with_room().max_entries

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self._readable().size_bytes

    @property
    def length_bytes(self) -> int:
        """The length of the file in bytes, which the entries could fill."""
        index = self._with_room()
        return index.length_bytes if self._live_entries is None else index.max_entries * index.entry_bytes

    def to_bytes(self) -> bytes:
        """Return the entries as stored in the file."""
        return self._at_rest_closed(self._readable().to_bytes())

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the first or last entry or the file's length is impossible (spec §2.7)."""
        self._at_rest_closed(self._readable().sanity_check())

    # --- changes

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`. Raises StorageError."""
        index = self.live()
        before = index.entries
        index.truncate_to(offset)  # type: ignore[attr-defined]
        if index.entries < before:
            self._wipe_tail(index)

    def truncate(self) -> None:
        """Remove every entry. Raises StorageError."""
        index = self.live()
        if index.entries:
            index.truncate()
            self._wipe_tail(index)

    def resize(self, new_size_bytes: int) -> bool:
        """Change the capacity, but not below the size of the entries. Return False if it is unchanged. Raises StorageError.

        An index that was written with a larger capacity thus keeps all entries (and is full).
        """
        index = self.live()
        if not index.resize(max(new_size_bytes, index.size_bytes)):
            return False
        self._set_length(index.max_entries * index.entry_bytes)
        self.write_entries()
        return True

    def create_if_missing(self) -> None:
        """Create the file if it is missing; an existing one is not read. Raises StorageError.

        A new file is empty, and gets its capacity at the first change: only its name needs to be synced.
        """
        if not self.is_idle or self.path.exists():
            return
        try:
            os.close(open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        except OSError as error:
            raise self._refused("create", error) from error
        self.is_own = self._is_synced = self._grows_later = True

    def grow_later(self) -> None:
        """Give the index its full capacity, as the active segment needs, at the first change. Raises StorageError."""
        if self._live_entries is None:
            self._grows_later = True
        else:
            self.resize(self.max_index_bytes)

    def trim_to_valid_size(self) -> bool:
        """Trim the file to its entries. Return False if the file is unchanged. Raises StorageError."""
        return self.resize(self.live().size_bytes)

    def reset(self) -> None:
        """Drop all entries, and begin with full capacity. The old content is not read. Raises StorageError."""
        self._forget()
        index = self._kind.create(self.base_offset, self.max_index_bytes)
        try:
            if self.path.is_symlink():
                self.path.unlink()  # Its target belongs to another folder.
            self._fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
            os.ftruncate(self._fd, index.max_entries * index.entry_bytes)
        except OSError as error:
            self.close_handlers()
            raise self._refused("create", error) from error
        self._live_entries = index
        self.is_own = True
        self._is_written, self._is_synced = True, False

    def install(self, raw: bytes | bytearray | memoryview) -> None:
        """Replace the content with complete entries that recovery has rebuilt. Entries beyond the capacity are left out.

        Raises StorageError.
        """
        self.reset()
        index = self.live()
        kept = memoryview(raw)[: index.max_entries * index.entry_bytes]
        entries = self._kind.from_bytes(self.base_offset, kept)  # type: ignore[arg-type]
        entries.max_entries = index.max_entries
        self._live_entries = entries
        self.write_entries()

    def flush(self) -> None:
        """Wait until the file is on disk. A missing file is created. Raises StorageError."""
        self.create_if_missing()
        if not self._is_synced or self.unwritten_entries:
            was_open = self._fd >= 0
            self._sync()
            if not was_open:
                self.release()

    def begin_sync(self) -> Path | None:
        """Write pending entries, mark the file as synced, and return its path for the caller to sync. Return None if it is
        already synced.

        Raises StorageError.
        """
        self.create_if_missing()
        if self._is_synced and not self.unwritten_entries:
            return None
        self.write_entries()
        self._is_written, self._is_synced = False, True
        return self.path

    def sync_failed(self) -> None:
        """Record that the sync in progress failed."""
        self._is_written, self._is_synced = True, False

    def rest(self) -> None:
        """Release memory and descriptor; entries are read from the file from now on. Raises StorageError."""
        self.write_entries()
        self.release()
        self._live_entries = None

    def release(self) -> None:
        """Close the descriptor until the next use. Raises StorageError if closing reports a lost write."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError as error:
                raise self._refused("close", error) from error

    def close(self) -> None:
        """Trim the file to its entries and release all resources. An unused index is not changed. Raises StorageError.

        Written entries are synced. Kafka does not sync them: after a clean shutdown and a power failure the last entry may be
        lost.
        """
        self._grows_later = False
        try:
            if not self.is_idle and self.length_bytes != self.size_bytes:
                self.trim_to_valid_size()
            if self._is_written or self.unwritten_entries:
                self._sync()
        finally:
            self._forget()

    def close_handlers(self) -> None:
        """Close the descriptor without changing the file (when its disk has failed). Never raises."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                self._is_synced = False

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is open."""
        return self._fd >= 0

    @property
    def is_idle(self) -> bool:
        """Whether the index has not been used yet."""
        return self._live_entries is None and self._entries_at_rest is None

    # --- the file and its name

    def rename_to(self, path: Path) -> None:
        """Rename the file, if it exists; the new path applies even if that fails. Raises StorageError."""
        self._entries_at_rest = None  # It reads by path.
        old, self.path = self.path, path
        try:
            old.replace(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not old.exists():
                return
            raise StorageError(f"cannot rename an index: {error.strerror or error}", path=old) from error

    def update_parent_dir(self, directory: Path) -> None:
        """Update the path after the folder has been renamed."""
        self._entries_at_rest = None
        self.path = directory / self.path.name

    def delete_if_exists(self) -> bool:
        """Release everything and remove the file; return whether it existed. Raises StorageError."""
        self._forget()
        return delete_file(self.path)

    # --- for the segment's append: several entries, one write

    def live(self) -> _Entries:
        """Return the entries in memory, which may be changed. `write_entries` writes new entries to the file. Raises
        StorageError.
        """
        if self._live_entries is None:
            if not self.path.exists():
                self.reset()
            else:
                self._load()
            if self._grows_later:
                self._grows_later = False
                self.resize(self.max_index_bytes)
        assert self._live_entries is not None
        return self._live_entries

    @property
    def own_bytes(self) -> bytearray | None:
        """The bytes of all entries, which must not be changed; None unless this process has made the entries and has them in
        memory.
        """
        return None if self._live_entries is None or not self.is_own else self._live_entries.raw

    @property
    def unwritten_entries(self) -> int:
        """The number of entries that are not in the file yet. Syncing, truncating or closing writes them first."""
        return 0 if self._live_entries is None else self._live_entries.entries - self._written

    def write_entries(self) -> None:
        """Write the entries that are not in the file yet. Raises StorageError; `keep` then undoes them."""
        index = self._live_entries
        if index is None or index.entries == self._written:
            return
        position = self._written * index.entry_bytes
        raw = index.entries_from(self._written)
        try:
            written = os.pwrite(self._fd if self._fd >= 0 else self._open(), raw, position)
            if written != len(raw):
                write_rest(self._fd, raw, written, position)
        except StorageError:
            raise
        except OSError as error:
            raise self._refused("write", error) from error
        self._written = index.entries
        self._is_written, self._is_synced = True, False

    def keep(self, entries: int) -> None:
        """Keep only the first `entries` entries, after a failed append. Never raises; the next write overwrites the others."""
        index = self._live_entries
        if index is not None and index.entries > entries:
            index.keep(entries)
            try:
                self._wipe_tail(index)
            except StorageError:
                self._written = min(self._written, entries)

    # --- inside

    def _with_room(self) -> _Entries:
        """Return the entries, after the file has been given its length."""
        return self.live() if self._grows_later else self._readable()

    def _readable(self) -> _Entries:
        if self._live_entries is not None:
            return self._live_entries
        if self._entries_at_rest is None:
            try:
                entries = self._kind.open(ReadOnlyFile(self.path, fallbacks=()), self.base_offset)
            except SegmentChangedError:
                return self.live()  # The file does not exist: it is created.
            if self._kind is TimeIndex and entries.length_bytes == entries.entry_bytes:
                entries.entries = 1  # Timestamp 0 at the base, not the tail of a live index.
            entries.close()
            self._entries_at_rest = entries
        return self._entries_at_rest

    def _at_rest_closed(self, answer: _Answer) -> _Answer:
        """Return a result, and close the descriptor that reading the file may have opened."""
        if self._entries_at_rest is not None:
            self._entries_at_rest.close()
        return answer

    def _load(self) -> None:
        """Load the file's entries into memory."""
        at_rest = self._readable()
        raw = self._at_rest_closed(at_rest.to_bytes())
        entries = self._kind.from_bytes(self.base_offset, raw)
        entries.max_entries = at_rest.max_entries
        self._live_entries, self._entries_at_rest = entries, None
        self._written = entries.entries
        if at_rest.length_bytes % at_rest.entry_bytes:
            self._wipe_tail(entries)

    def _wipe_tail(self, index: _Entries) -> None:
        """Write zeros after the entries, and set the file's length."""
        self._written = min(self._written, index.entries)
        length = max(index.max_entries, index.entries) * index.entry_bytes
        self._set_length(index.size_bytes)
        if length > index.size_bytes:
            self._set_length(length)

    def _set_length(self, length_bytes: int) -> None:
        try:
            os.ftruncate(self._open(), length_bytes)
        except OSError as error:
            raise self._refused("resize", error) from error
        self._is_written, self._is_synced = True, False

    def _sync(self) -> None:
        self.write_entries()
        try:
            os.fsync(self._open())
        except OSError as error:
            raise self._refused("sync", error) from error
        self._is_written, self._is_synced = False, True

    def _open(self) -> int:
        if self._fd < 0:
            try:
                self._fd = open_file(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    return self._replace_link()
                raise self._refused("open", error) from error
        return self._fd

    def _replace_link(self) -> int:
        """Replace a symbolic link with a regular file: its target belongs to another folder. Raises StorageError."""
        index = self._live_entries
        try:
            raw = self.path.read_bytes() if index is None else bytes(index.entries_from(0))
            self.path.unlink()
            self._fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            os.pwrite(self._fd, raw, 0)
        except OSError as error:
            raise self._refused("replace", error) from error
        if index is not None:
            self._written = index.entries
        return self._fd

    def _forget(self) -> None:
        self.close_handlers()
        self._live_entries = self._entries_at_rest = None
        self._written = 0
        self._is_written = False

    def _refused(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"cannot {what} an index: {error.strerror or error}", path=self.path)
