"""Reads files that another process may be writing, renaming or removing. Files are opened on the first read, and read only by
`pread`.

Files are never mapped: reading a mapping past a truncation kills the process, while `pread` returns fewer bytes.

A file is identified by its inode. Kafka renames a segment to ``….deleted`` a minute before removing it, and gives a compacted
segment the old name. So a file that is missing or replaced is looked for under `fallbacks` (by default ``<path>.deleted``), and
accepted only if it has the same inode. Otherwise SegmentChangedError is raised.

`formats/`, `reader/` and the packages built on them use this module. Objects are not thread-safe, except for `read`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, TypeAlias

from tidelog.errors import SegmentChangedError, StorageError, TidelogError
from tidelog.formats.file_stamp import FileStamp
from tidelog.formats.names import DELETED_SUFFIX
from tidelog.formats.paths.file_path import FilePath, Handle, with_ending
from tidelog.formats.paths.local_handle import open_handle

logger = logging.getLogger("tidelog.log")

Tell = Callable[[FilePath, str], None]


class FileIdentity(NamedTuple):
    """A file's identity, which does not depend on its name."""

    device: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> FileIdentity:
        return cls(stat.st_dev, stat.st_ino)


class Notices:
    """Logs tolerated faults, each once per file and text."""

    def __init__(self) -> None:
        self._noted: set[tuple[FilePath, str]] = set()

    def note(self, path: FilePath, text: str) -> None:
        """Log one line about `path`, unless it was logged before."""
        if (path, text) not in self._noted:
            self._noted.add((path, text))
            logger.warning("%s: %s", path, text)


def read_whole(path: FilePath) -> bytes:
    """Return all bytes of a regular file that fits in memory. Raises OSError."""
    handle = open_handle(path)
    try:
        # A handle returns less than it was asked for only at the end of the file.
        wanted = handle.stat().st_size + 1
        data = handle.read(0, wanted)
        while len(data) >= wanted:  # It has grown.
            wanted *= 2
            data = handle.read(0, wanted)
    finally:
        handle.close()
    return data


Fallbacks: TypeAlias = "Sequence[FilePath] | Callable[[], Sequence[FilePath]]"
"""Other names under which a file may be found."""


class ReadOnlyFile:
    """One file, opened at its first read. `identity` is the file's known identity. If it is None, the first file that is opened
    is accepted, and from then on only that file.
    """

    def __init__(self, path: FilePath, identity: FileIdentity | None = None, fallbacks: Fallbacks | None = None) -> None:
        self.path = path
        self.identity = identity
        self.bytes_read = 0
        self.fallbacks = fallbacks
        self._handle: Handle | None = None

    def __enter__(self) -> ReadOnlyFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def locate(self) -> FilePath | None:
        """Return the file's current path, None if the file is at none of the known paths."""
        self.open()
        for candidate in self._candidates():
            try:
                if FileIdentity.of(candidate.stat()) == self.identity:
                    return candidate
            except OSError:
                continue
        return None

    def open(self) -> Handle:
        """Open the file now. Raises SegmentChangedError if it is missing or replaced, StorageError if it cannot be opened."""
        if self._handle is not None:
            return self._handle
        replaced = False
        for candidate in self._candidates():
            try:
                handle = open_handle(candidate)
            except FileNotFoundError:
                continue
            except TidelogError:
                raise
            except OSError as error:
                raise StorageError(f"cannot open a file: {error.strerror}", path=candidate) from error
            identity = FileIdentity.of(handle.stat())
            if self.identity is not None and identity != self.identity:
                handle.close()
                replaced = True
                continue
            self._handle, self.identity = handle, identity
            return handle
        raise SegmentChangedError("a file was replaced" if replaced else "a file no longer exists", path=self.path)

    def _candidates(self) -> Iterator[FilePath]:
        yield self.path  # Nearly always the file is found at once, and the other names are not needed.
        others = self.fallbacks
        if others is None:
            yield with_ending(self.path, DELETED_SUFFIX)
        else:
            yield from others() if callable(others) else others

    def descriptor(self) -> int:
        """Return the open file's descriptor, for a kernel that reads the file itself; -1 if there is no descriptor. Valid
        until `close`.
        """
        return self.open().fd

    def size_bytes(self) -> int:
        """Return the file's current size."""
        return self.open().stat().st_size

    def stamp(self) -> FileStamp:
        """Return the file's current stamp (`file_stamp`)."""
        return FileStamp.of(self.open().stat())

    def modified_ms(self) -> int:
        """Return the file's modification time in epoch milliseconds."""
        return self.open().stat().st_mtime_ns // 1_000_000

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the end of the file."""
        handle = self._handle or self.open()
        try:
            data = handle.read(position, length)
        except TidelogError:
            raise
        except OSError as error:
            raise StorageError(f"cannot read a file: {error.strerror}", path=self.path, position=position) from error
        self.bytes_read += len(data)
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; return the number of bytes, smaller than the buffer only at the end of the file."""
        handle = self._handle or self.open()
        try:
            count = handle.read_into(position, buffer)
        except TidelogError:
            raise
        except OSError as error:
            raise StorageError(f"cannot read a file: {error.strerror}", path=self.path, position=position) from error
        self.bytes_read += count
        return count

    def is_constant(self) -> bool:
        """Return whether the content never changes, as in an object that is identified by its ETag."""
        return self.open().is_constant

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announce that the byte ranges `ranges` are about to be read, in this order, which ascends. This is only a hint."""
        self.open().will_read(ranges)

    def close(self) -> None:
        """Close the file. A later read opens it again, and requires the same identity."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            handle.close()
