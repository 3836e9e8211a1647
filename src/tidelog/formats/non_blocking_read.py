"""Reads that do not wait for the disk, for a thread that serves many clients.

Within `with non_blocking():` a read on the same thread returns bytes from the page cache, or raises `NotCachedError`. The caller
then has another thread read the bytes (`prefetch`), and repeats its work, which must not have changed anything.

| file system | a read uses |
|---|---|
| ext4, xfs, btrfs... on Linux | `preadv` with RWF_NOWAIT |
| other file systems and systems | an ordinary read, which waits |
"""

from __future__ import annotations

import errno
import os
import threading

_SCRATCH_BYTES = 64 * 1024
_WARM_BYTES = 1024 * 1024
READAHEAD_BYTES = 256 * 1024
"""The minimum number of bytes to prefetch. A reader that continues will need the bytes after its own."""

_NOWAIT = getattr(os, "RWF_NOWAIT", None)


class NotCachedError(Exception):
    """Raised if the bytes [position, position + length) of a file are not all in memory. Owns a descriptor until `prefetch`
    or `close`.
    """

    is_progress = False
    """Whether each `prefetch` makes progress. If so, this error may be raised any number of times for one piece of work."""
    _fd = -1

    def __init__(self, fd: int, position: int, length: int) -> None:
        super().__init__("the bytes are not in memory")
        self.position = position
        self.length = length
        self._fd = os.dup(fd)

    def __del__(self) -> None:
        self.close()

    def prefetch(self) -> None:
        """Read the bytes into the page cache for the next read. Call it once, on another thread."""
        position, end = self.position, self.position + max(self.length, READAHEAD_BYTES)
        try:
            # One buffer for all reads: allocating and freeing memory for each would delay other threads.
            buffer = memoryview(bytearray(min(_WARM_BYTES, end - position)))
            while position < end:
                got = os.preadv(self._fd, (buffer[: end - position],), position)
                if not got:
                    break
                position += got
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class ReadMode:
    """One thread's mode: whether its reads may wait, and a buffer for reads that are copied."""

    __slots__ = ("is_non_blocking", "scratch")

    def __init__(self) -> None:
        self.is_non_blocking = False
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))

    @property
    def flags(self) -> int:
        """The flags of `os.preadv` for a read in this mode."""
        return (_NOWAIT or 0) if self.is_non_blocking else 0


class _Modes(threading.local):
    def __init__(self) -> None:
        self.here = ReadMode()


_modes = _Modes()


def read_mode() -> ReadMode:
    """Return this thread's mode. Setting its `is_non_blocking` is faster than entering `non_blocking`: use that for thousands of
    calls a second.
    """
    return _modes.here


class non_blocking:  # noqa: N801 - it reads as a phrase where it stands
    """A context in which `pread` does not wait. Contexts may be nested."""

    __slots__ = ("_before", "_mode")
    _is_non_blocking = True

    def __enter__(self) -> None:
        mode = self._mode = _modes.here
        self._before = mode.is_non_blocking
        mode.is_non_blocking = self._is_non_blocking

    def __exit__(self, *_: object) -> None:
        self._mode.is_non_blocking = self._before


class blocking(non_blocking):  # noqa: N801
    """A context in which reads may wait, even inside `non_blocking`."""

    __slots__ = ()
    _is_non_blocking = False


def is_non_blocking() -> bool:
    """Whether this thread is inside `non_blocking`."""
    return _modes.here.is_non_blocking


def pread(fd: int, length: int, position: int) -> bytes:
    """Return up to `length` bytes, like `os.pread`. Raises OSError; NotCachedError instead of waiting."""
    mode = _modes.here
    if not mode.is_non_blocking or _NOWAIT is None:
        return os.pread(fd, length, position)
    buffer = mode.scratch[:length] if length <= _SCRATCH_BYTES else memoryview(bytearray(length))
    count = _read_cached(fd, buffer, position)
    return buffer.tobytes() if count == length else buffer[:count].tobytes()


def _read_cached(fd: int, buffer: memoryview, position: int) -> int:
    """Fill `buffer` from the page cache. Return the number of bytes, which is smaller than the buffer only at the end of the
    file.

    Raises OSError, NotCachedError. Waits for the disk if the file system cannot tell what is cached.
    """
    length = len(buffer)
    try:
        count = os.preadv(fd, (buffer,), position, _NOWAIT or 0)
        while 0 < count < length:
            more = os.preadv(fd, (buffer[count:],), position + count, _NOWAIT or 0)
            if not more:
                break
            count += more
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise NotCachedError(fd, position, length) from None
        if error.errno != errno.EOPNOTSUPP:
            raise
        return os.preadv(fd, (buffer,), position)
    return count
