"""The writable `.log` of a segment: bytes are only added at the end (spec §4.15).

| | |
|---|---|
| `size_bytes` | the logical end, after the last complete append; this class reads nothing after it |
| the file's length | the same, or more if the file is preallocated (zeros after the end) or a write has failed |

Invariants
    * Incomplete appends do not count. A failed write is truncated. If the truncation fails too, the error says so, `trim` or
      `close` retries it, and nothing is appended before it succeeds.
    * The descriptor is opened when first needed, and may be closed at any time (`release`), so an unused segment needs none. All
      access is by `pread` and `pwrite`; a mapping is made only for callers that pass the bytes on unread (`mapped`).
    * A symbolic link is never written through: its target belongs to another folder (`read_only_view`).
    * Only `flush`, and `close` after a write, wait for the disk.

`log_file_reader` has the reads. Each `LogSegment` has a `LogFile`; recovery and compaction read through it. Not thread-safe.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.config import INT32_MAX
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.records.compression import Bytes
from tidelog.storage.segment.descriptors import open_file
from tidelog.storage.segment.log_file_reader import LogFileReader, refused


class LogFile(LogFileReader):
    """One `.log` file. `rename_to` changes `path`; the file stays the same."""

    def __init__(self, path: Path | str, size_bytes: int, *, preallocated_bytes: int = 0, fd: int = -1) -> None:
        super().__init__(path, size_bytes, fd)
        self._preallocated_bytes = preallocated_bytes
        self._is_torn = False
        self._is_written = False

    @classmethod
    def open(
        cls, path: Path | str, *, file_already_exists: bool = False, init_file_size: int = 0, preallocate: bool = False
    ) -> LogFile:
        """Open or create a file.

        With `preallocate` a new file gets its full length, `init_file_size` bytes, at once and is logically empty. An existing
        file counts as full up to its length, zeros included: recovery finds the valid part. The file is not opened yet. Raises
        InvalidArgumentError for a file larger than an int32, StorageError.
        """
        try:
            if file_already_exists:
                try:
                    return cls(path, _checked_length(path, os.stat(path).st_size))  # noqa: PTH116
                except FileNotFoundError:
                    pass  # It is created.
            fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                if preallocate and not file_already_exists:
                    os.ftruncate(fd, init_file_size)
                    return cls(path, 0, preallocated_bytes=init_file_size, fd=fd)
                log = cls(path, _checked_length(path, os.fstat(fd).st_size), fd=fd)
                log._is_synced = not (file_already_exists or log.size_bytes)  # Only the name of a new file must be synced.
                return log
            except BaseException:
                os.close(fd)
                raise
        except StorageError:
            raise
        except OSError as error:
            raise refused("open", path, error) from error

    def __repr__(self) -> str:
        return f"LogFile({str(self.path)!r}, {self.size_bytes} bytes)"

    def __del__(self) -> None:
        self.close_handlers()

    # --- writing

    def append(self, data: Bytes) -> int:
        """Write `data` at the end; return its size in bytes.

        Raises InvalidArgumentError if the new size exceeds an int32, StorageError if the disk fails: the file is then unchanged,
        or the message says otherwise.
        """
        size = len(data)
        position = self.size_bytes
        end = position + size
        if end > INT32_MAX:
            raise InvalidArgumentError(
                "a segment cannot grow beyond 2^31 - 1 bytes", path=self.path, found=end, expected=INT32_MAX
            )
        fd = self._fd
        if fd < 0:
            fd = self._open()
        if self._is_torn:
            self._cut_back()
        # From here on an interruption may leave bytes after the logical end.
        self._is_torn = True
        try:
            written = os.pwrite(fd, data, position)
            if written != size:
                write_rest(fd, data, written, position)
        except OSError as error:
            raise self._failed_append(error) from error
        self._is_written = True
        self._is_synced = False
        self.size_bytes = end
        self._is_torn = False
        return size

    def truncate_to(self, target_bytes: int) -> int:
        """Truncate the file to `target_bytes`. Return how many bytes were removed, including a preallocated tail.

        Raises InvalidArgumentError for a target after the end or below 0, StorageError.
        """
        size = self.size_bytes
        if not 0 <= target_bytes <= size:
            raise InvalidArgumentError(
                "a log file can only be truncated to a size from 0 to its current size",
                path=self.path,
                found=target_bytes,
                expected=f"0 to {size}",
            )
        if target_bytes < max(size, self._preallocated_bytes) or self._is_torn:
            try:
                fd = self._open()
                if not self._is_link:  # A linked file is not changed; this object just reads less of it.
                    os.ftruncate(fd, target_bytes)
            except OSError as error:
                raise refused("truncate", self.path, error) from error
            self._preallocated_bytes = 0
            self._is_torn = False
            self._is_written = not self._is_link
            self._is_synced = self._is_link
        self.size_bytes = target_bytes
        self._first = None
        return size - target_bytes

    def take_back(self, size_bytes: int) -> None:
        """Undo the appends after `size_bytes`. Raises StorageError if the file cannot be truncated; the size changes anyway."""
        self.size_bytes = size_bytes
        self._first = None
        self._is_torn = True
        self._cut_back()

    def trim(self) -> None:
        """Remove bytes after the end: a preallocated tail, or the rest of a failed write. Raises StorageError."""
        self.truncate_to(self.size_bytes)

    def flush(self) -> None:
        """Wait until all writes, by any process, are on disk. Raises StorageError."""
        if self._is_synced:
            return
        was_open = self._fd >= 0
        try:
            os.fsync(self._open())
        except OSError as error:
            raise refused("sync", self.path, error) from error
        finally:
            if not was_open:
                self.release()
        self._is_synced = True

    def begin_sync(self) -> Path | None:
        """Mark the file as synced, and return its path for the caller to sync; None if it is synced already."""
        if self._is_synced:
            return None
        self._is_synced = True  # Later writes mark the file as not synced.
        return self.path

    def sync_failed(self) -> None:
        """Record that the sync in progress failed."""
        self._is_synced = False

    def close(self) -> None:
        """Trim the tail, sync this object's writes, close the descriptor. Raises StorageError."""
        try:
            self.trim()
            if self._is_written:
                self.flush()
        finally:
            self.close_handlers()

    # --- the file and its name

    @property
    def modified_ms(self) -> int:
        """The file's modification time, epoch milliseconds. Raises StorageError."""
        try:
            return (os.fstat(self._fd) if self._fd >= 0 else self.path.stat()).st_mtime_ns // 1_000_000
        except OSError as error:
            raise refused("look at", self.path, error) from error

    def rename_to(self, path: Path) -> None:
        """Rename the file; the new path applies even if that fails, as in Kafka (spec §2.2). Raises StorageError."""
        old, self.path = self.path, path
        try:
            old.replace(path)
        except OSError as error:
            raise refused("rename", old, error) from error

    def update_parent_dir(self, directory: Path) -> None:
        """Update the path after the folder has been renamed."""
        self.path = directory / self.path.name

    def delete_if_exists(self) -> bool:
        """Close the descriptor and remove the file; return whether it existed. Raises StorageError."""
        self.close_handlers()
        return delete_file(self.path)

    # --- inside

    def _failed_append(self, error: OSError) -> StorageError:
        """Truncate the file to its size before a failed append, and return the error to raise."""
        try:
            self._cut_back()
        except StorageError as second:
            return StorageError(
                f"cannot write a file: {error.strerror or error}; nor could it be truncated to {self.size_bytes} bytes, "
                f"which will be retried: {second.message}",
                path=self.path,
                position=self.size_bytes,
            )
        return StorageError(f"cannot write a file: {error.strerror or error}", path=self.path, position=self.size_bytes)

    def _cut_back(self) -> None:
        """Remove bytes after the logical end, and extend a preallocated file again with zeros."""
        fd = self._open()
        try:
            os.ftruncate(fd, self.size_bytes)
            if self._preallocated_bytes > self.size_bytes:
                os.ftruncate(fd, self._preallocated_bytes)
        except OSError as error:
            raise refused("truncate", self.path, error) from error
        self._is_torn = False
        self._is_synced = False


def delete_file(path: Path) -> bool:
    """Remove a file; return whether it existed. Raises StorageError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refused("delete", path, error) from error
    return True


def write_rest(fd: int, data: Bytes, written: int, position: int) -> None:
    """Complete a partial write. If the disk is full, the next write raises the error."""
    view = memoryview(data)
    while written < len(view):
        more = os.pwrite(fd, view[written:], position + written)
        if more <= 0:
            raise OSError(f"{written} of {len(view)} bytes were written")
        written += more


def _checked_length(path: Path | str, length_bytes: int) -> int:
    if length_bytes > INT32_MAX:
        raise InvalidArgumentError("a segment is larger than 2^31 - 1 bytes", path=path, found=length_bytes, expected=INT32_MAX)
    return length_bytes
