"""An open local file. Other kinds of paths open their own handles (`VirtualPath`)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tidelog.formats.non_blocking_read import pread
from tidelog.formats.paths.file_path import FilePath, Handle, VirtualPath


class LocalHandle:
    """A regular local file, read by `pread`."""

    __slots__ = ("fd",)
    is_constant = False

    def __init__(self, path: Path) -> None:
        self.fd = open_regular(path)

    def stat(self) -> os.stat_result:
        return os.fstat(self.fd)

    def read(self, position: int, length: int) -> bytes:
        data = pread(self.fd, length, position)
        # On Linux one call returns at most 2 GiB - 4 KiB, and network file systems may return less than requested.
        while 0 < len(data) < length:
            more = pread(self.fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        if not hasattr(os, "preadv"):
            data = self.read(position, len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count = 0
        while count < len(buffer):
            more = os.preadv(self.fd, [buffer[count:]], position + count)
            if not more:
                break
            count += more
        return count

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        pass  # The operating system reads ahead.

    def close(self) -> None:
        os.close(self.fd)


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor. Anything else raises OSError without waiting."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # O_NONBLOCK: a named pipe would wait.
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return fd


def open_handle(path: FilePath) -> Handle:
    """Open a local file or a virtual one. Raises OSError."""
    return LocalHandle(path) if isinstance(path, Path) else cast("VirtualPath", path).open_handle()
