"""Buffers for reading and copying a log, reused as soon as nothing refers to them.

Freed memory is returned to the system, which clears each page before handing it out again. Clearing would cost a scan
half as much as all its other work. So buffers are kept. The reference count shows whether a buffer may be overwritten:
memoryviews, kernel columns and Arrow buffers, in any library, hold a reference to the object whose memory they show.

Each scan has its own pool, so only one thread uses a pool at a time.
"""

from __future__ import annotations

import sys

CHUNK_BYTES = 1024 * 1024
"""Bytes per read. A chunk of this size stays in the processor's cache while it is read, checked, parsed and copied."""

POOL_BYTES = 32 * 1024 * 1024
"""The pool keeps at most this many bytes. If views hold more, the garbage collector frees the rest."""

POOL_BUFFERS = 32
"""The pool keeps at most this many buffers, because `take` searches them one by one."""

SMALL_BYTES = 64 * 1024
"""The unit of buffers that are smaller than half a chunk."""


class Chunks:
    """A pool of buffers."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._kept_bytes = 0
        self._idle_references = 0

    def take(self, size_bytes: int) -> memoryview:
        """Return a writable view of `size_bytes`. Its memory is not reused while the view or a slice of it exists."""
        for i in range(len(self._kept)):
            if len(self._kept[i]) >= size_bytes and self._references(i) == self._idle_references:
                return memoryview(self._kept[i])[:size_bytes]
        # A plan by time maps has many runs of one block. A whole chunk for each would take sixteen times as much memory.
        unit = CHUNK_BYTES if size_bytes > CHUNK_BYTES // 2 else SMALL_BYTES
        buffer = bytearray(-(-size_bytes // unit) * unit)
        if self._kept_bytes + len(buffer) > POOL_BYTES or len(self._kept) >= POOL_BUFFERS:
            return memoryview(buffer)[:size_bytes]
        self._kept_bytes += len(buffer)
        self._kept.append(buffer)
        del buffer
        # The reference count of an idle buffer depends on the interpreter's calls, so compare with a buffer that is idle.
        self._idle_references = self._references(-1)
        return memoryview(self._kept[-1])[:size_bytes]

    def _references(self, i: int) -> int:
        return sys.getrefcount(self._kept[i])
