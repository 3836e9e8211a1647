"""The memory that requests are read into. Each server has one `ReadBuffers`.

| memory | for | bytes that are copied |
|---|---|---|
| `shared` | small frames: they are answered from this buffer before another connection is read | the incomplete rest |
| `take`, `give_back` | one larger frame at a time, of one connection | none |

Some returned buffers are kept, because new memory costs a page fault for every 4 KiB, which takes longer than receiving the
bytes. The buffers are anonymous maps, so a peer that announces 100 MiB and sends nothing uses no memory.

Received bytes of large requests are counted over all connections, until the request is answered or its records are written.
Announced bytes do not count. `max_bytes` (`queued.max.request.bytes`) is the limit:

| once it is reached | |
|---|---|
| the connection whose request came first | may exceed the limit, as in Kafka, so that one request can always finish |
| all others | are not read; `when_room` calls them later |
| a connection that others wait for and that has sent nothing for `STALLED_S` | is closed: see `broker_server` |
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

SHARED_BYTES = 128 * 1024
"""Large enough for several batches of 16 KiB, small enough to stay in the processor's cache."""

LARGE_BYTES = 32 * 1024
"""Requests larger than this are read into a separate buffer."""

KEPT_BYTES = 16 * 1024 * 1024

DEFAULT_MAX_BYTES = 512 * 1024 * 1024
"""The limit if none is set. In Kafka there is no limit in this case."""


class ReadBuffers:
    """Buffers for requests, counted against one limit. `max_bytes` below 1 means `DEFAULT_MAX_BYTES`."""

    def __init__(self, max_bytes: int = -1) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.max_bytes = max_bytes if max_bytes > 0 else DEFAULT_MAX_BYTES
        self.used_bytes = 0
        """The number of received bytes of unfinished large requests."""
        self.beyond: object | None = None
        """The connection that may continue although the limit is reached; None if there is none."""
        self._free: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._was_used = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def has_room(self) -> bool:
        """Whether another large request may begin."""
        return self.used_bytes < self.max_bytes

    @property
    def is_waited_for(self) -> bool:
        """Whether a connection waits for room."""
        return bool(self._waiting)

    def may_go_on(self, who: object) -> bool:
        """Return whether `who` may read more of its request: there is room, or it is the one connection that may exceed
        the limit.
        """
        if self.used_bytes < self.max_bytes:
            return True
        if self.beyond is None:
            self.beyond = who
        return self.beyond is who

    def take(self, size: int) -> memoryview:
        """Return at least `size` bytes of memory, which may contain bytes of earlier requests."""
        self._was_used = True
        size = 1 << (size - 1).bit_length()
        free = self._free.get(size)
        if free:
            self._kept_bytes -= size
            return free.pop()
        return memoryview(mmap.mmap(-1, size))

    def give_back(self, buffer: memoryview) -> None:
        """Take back a buffer that `take` returned. The caller must no longer use it."""
        size = len(buffer)
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            self._free.setdefault(size, []).append(buffer)

    def discount(self, size: int, who: object = None) -> None:
        """Release `size` bytes that were counted for `who`."""
        self.used_bytes -= size
        if self.beyond is who and who is not None:
            self.beyond = None
        if self._waiting and (self.has_room or self.beyond is None):
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once there may be room. No room is reserved: the callback must check again, because other connections
        may have taken the room.
        """
        self._waiting.append(callback)

    def trim(self) -> None:
        """Free the kept buffers if none has been taken since the last call."""
        if not self._was_used:
            self._free.clear()
            self._kept_bytes = 0
        self._was_used = False
