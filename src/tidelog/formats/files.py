"""Files that another process may be writing, renaming or removing. They are opened on the first read, and read only by `pread`.

Files are never mapped: reading a mapping past a truncation kills the process, while `pread` returns fewer bytes.

A file is identified by its inode. Kafka renames a segment to ``….deleted`` a minute before removing it, and gives a compacted
segment the old name. So a file that is gone or replaced is looked for under `fallbacks` (by default ``<path>.deleted``), and
accepted only if it has the same inode. Otherwise: SegmentChangedError.

For `formats/`, `reader/` and the rooms that read through them. Except for `read`, one thread at a time may use an object.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.formats.file_stamp import FileStamp
from tidelog.formats.names import DELETED_SUFFIX
from tidelog.formats.non_blocking_read import pread

logger = logging.getLogger("tidelog.log")

Tell = Callable[[Path, str], None]


class FileIdentity(NamedTuple):
    """A file's identity, whatever its name."""

    device: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> FileIdentity:
        return cls(stat.st_dev, stat.st_ino)


class Notices:
    """Logs tolerated faults, each once per file and text."""

    def __init__(self) -> None:
        self._noted: set[tuple[Path, str]] = set()

    def note(self, path: Path, text: str) -> None:
        """Log one line about `path`, unless it was logged before."""
        if (path, text) not in self._noted:
            self._noted.add((path, text))
            logger.warning("%s: %s", path, text)


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor. Anything else raises OSError without waiting."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # O_NONBLOCK: a named pipe would wait for its writer.
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return fd


def read_whole(path: Path) -> bytes:
    """Return all bytes of a small regular file. Raises OSError."""
    fd = open_regular(path)
    try:
        data = b""
        while chunk := os.read(fd, 65536):
            data += chunk
    finally:
        os.close(fd)
    return data


class ReadOnlyFile:
    """One file, opened at its first read. `identity` is the file's earlier identity; None accepts the file that is opened
    first, and then only that file.
    """

    def __init__(self, path: Path, identity: FileIdentity | None = None, fallbacks: Sequence[Path] | None = None) -> None:
        self.path = path
        self.identity = identity
        self.bytes_read = 0
        self.fallbacks: Sequence[Path] = (Path(f"{path}{DELETED_SUFFIX}"),) if fallbacks is None else tuple(fallbacks)
        self._fd = -1

    def __enter__(self) -> ReadOnlyFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def locate(self) -> Path | None:
        """Return the file's current name, None if it is none of the known ones."""
        self.open()
        for candidate in (self.path, *self.fallbacks):
            try:
                if FileIdentity.of(candidate.stat()) == self.identity:
                    return candidate
            except OSError:
                continue
        return None

    def open(self) -> None:
        """Open the file now. Raises SegmentChangedError if it is gone or replaced, StorageError if it cannot be opened."""
        if self._fd >= 0:
            return
        replaced = False
        for candidate in (self.path, *self.fallbacks):
            try:
                fd = open_regular(candidate)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(f"cannot open a file: {error.strerror}", path=candidate) from error
            identity = FileIdentity.of(os.fstat(fd))
            if self.identity is not None and identity != self.identity:
                os.close(fd)
                replaced = True
                continue
            self._fd, self.identity = fd, identity
            return
        raise SegmentChangedError("a file was replaced by another" if replaced else "a file is gone", path=self.path)

    def descriptor(self) -> int:
        """Return the open file's descriptor, for a kernel that reads by itself. Valid until `close`."""
        self.open()
        return self._fd

    def size_bytes(self) -> int:
        """Return the file's current size."""
        self.open()
        return os.fstat(self._fd).st_size

    def stamp(self) -> FileStamp:
        """Return the file's current stamp (`file_stamp`)."""
        self.open()
        return FileStamp.of(os.fstat(self._fd))

    def modified_ms(self) -> int:
        """Return the file's modification time in epoch milliseconds."""
        self.open()
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the end of the file."""
        self.open()
        try:
            data = pread(self._fd, length, position)
            # One call moves at most 2 GiB - 4 KiB on Linux, and network file systems may give less than asked for.
            while 0 < len(data) < length:
                more = pread(self._fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageError(f"cannot read a file: {error.strerror}", path=self.path, position=position) from error
        self.bytes_read += len(data)
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; return the number of bytes, smaller than the buffer only at the end of the file."""
        if not hasattr(os, "preadv"):
            data = self.read(position, len(buffer))
            buffer[: len(data)] = data
            return len(data)
        self.open()
        count = 0
        try:
            while count < len(buffer):
                more = os.preadv(self._fd, [buffer[count:]], position + count)
                if not more:
                    break
                count += more
        except OSError as error:
            raise StorageError(f"cannot read a file: {error.strerror}", path=self.path, position=position) from error
        self.bytes_read += count
        return count

    def close(self) -> None:
        """Close the descriptor. A later read opens the file again and requires the same inode."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)
