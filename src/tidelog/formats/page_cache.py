"""Asks the kernel which pages of a file are cached: `cachestat`, since Linux 6.5. Used by `non_blocking_read`."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading

PAGE_BYTES = mmap.PAGESIZE

_CACHESTAT = 451
"""The number of the system call, the same on every architecture."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted"))


class _Asker(threading.local):
    """The system call's arguments, one set per thread."""

    def __init__(self) -> None:
        self.call = ctypes.CDLL(None).syscall if sys.platform.startswith("linux") else None
        self.range, self.found = _Range(), _CacheStat()
        self.arguments = (ctypes.byref(self.range), ctypes.byref(self.found), 0)


_asker = _Asker()


def holds(fd: int, position: int, length: int) -> bool | None:
    """Return whether all pages with these bytes (at least one) are in memory; None if the system cannot tell."""
    asker = _asker
    if asker.call is None:
        return None
    first = position // PAGE_BYTES
    asker.range.offset, asker.range.length = first * PAGE_BYTES, position + length - first * PAGE_BYTES
    if asker.call(_CACHESTAT, fd, *asker.arguments):
        return None
    return bool(asker.found.cached > (position + length - 1) // PAGE_BYTES - first)
