"""Reads that do not wait for a disk: for who serves many from one thread, and may not stop for one.

Within `with no_waiting():` a read, on the same thread, gives what the page cache holds and else raises `NotCachedError`. Whoever
catches that has the bytes read on another thread (`warm`), and tries again from the start: nothing was changed.

| | |
|---|---|
| Linux, ext4, xfs, btrfs... | `preadv` with RWF_NOWAIT; `cachestat` for what is mapped, from Linux 6.5 on |
| where the file system or the system does not know that | an ordinary read: it waits |
"""

from __future__ import annotations

import errno
import os
import threading

_SCRATCH_BYTES = 64 * 1024
_WARM_BYTES = 1024 * 1024
READAHEAD_BYTES = 256 * 1024
"""So much is made ready at least: who reads on will want it."""

_NOWAIT = getattr(os, "RWF_NOWAIT", None)


class NotCachedError(Exception):
    """The bytes [position, position + length) of a file are not all in memory. Owns a descriptor until `warm` or `close`."""

    def __init__(self, fd: int, position: int, length: int) -> None:
        super().__init__("not in memory")
        self.position = position
        self.length = length
        self._fd = os.dup(fd)

    def __del__(self) -> None:
        self.close()

    def warm(self) -> None:
        """Read the bytes, wherever they are, so that they are in memory for the next who reads. For another thread; once."""
        position, end = self.position, self.position + max(self.length, READAHEAD_BYTES)
        try:
            # One buffer for all of it: memory that is taken and given back for each read holds up the other threads.
            buffer = memoryview(bytearray(min(_WARM_BYTES, end - position)))
            while position < end:
                got = os.preadv(self._fd, (buffer[: end - position],), position)
                if not got:
                    break
                position += got
        finally:
            self.close()

    def close(self) -> None:
        """Give the descriptor back. Twice is no error."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Patience(threading.local):
    """Of one thread: whether it may wait, and memory for reads that are copied from there."""

    is_short = False

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))


_patience = _Patience()


class no_waiting:  # noqa: N801 - it reads as a phrase where it stands
    """A context in which `pread` does not wait. They may be nested."""

    __slots__ = ("_before",)
    _is_short = True

    def __enter__(self) -> None:
        self._before = _patience.is_short
        _patience.is_short = self._is_short

    def __exit__(self, *_: object) -> None:
        _patience.is_short = self._before


class waiting(no_waiting):  # noqa: N801
    """A context in which reads do wait, whatever is around it."""

    __slots__ = ()
    _is_short = False


def must_not_wait() -> bool:
    """Whether this thread is within `no_waiting`."""
    return _patience.is_short


def pread(fd: int, length: int, position: int) -> bytes:
    """Return up to `length` bytes, as `os.pread`. Raises OSError; NotCachedError where waiting is not allowed."""
    if not _patience.is_short or _NOWAIT is None:
        return os.pread(fd, length, position)
    buffer = _patience.scratch[:length] if length <= _SCRATCH_BYTES else memoryview(bytearray(length))
    count = _read_cached(fd, buffer, position)
    return buffer.tobytes() if count == length else buffer[:count].tobytes()


def _read_cached(fd: int, buffer: memoryview, position: int) -> int:
    """Fill `buffer` from the page cache; return how many bytes, fewer only where the file ends.

    Raises OSError, NotCachedError. Waits on a file system that cannot tell.
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


def is_cached(fd: int, position: int, length: int) -> bool | None:
    """Return whether all pages with these bytes (at least one) are in memory; None where the system cannot tell."""
    # Not before somebody asks: it brings in ctypes, which no tool needs.
    from tidelog.formats.page_cache import holds

    return holds(fd, position, length)
