"""The memory that requests are read into. One for each server.

| | for | copied |
|---|---|---|
| `shared` | small frames: they are answered while they are in there, before anybody else is read | what is left over |
| `take`, `give_back` | one larger frame at a time, of one connection | nothing |

Buffers that were given back are kept, some of them: memory that was never touched costs a page fault for every 4 KiB, more than
receiving the bytes. They are anonymous maps: a peer that announces 100 MiB and sends nothing costs nothing.

Bytes of large requests are counted, over all connections, from the first one received until the request is answered or its
records are written; announced bytes are not. `max_bytes` (`queued.max.request.bytes`) bounds it:

| once it is used up | |
|---|---|
| a connection whose request came first | goes on beyond, as with Kafka: so the bound is never forever; one at a time |
| all others | are not read; `when_room` calls them later |
| one that others wait for, and that has sent nothing for `STALLED_S` | is closed: see `broker_server` |
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

SHARED_BYTES = 128 * 1024
"""Large enough for some batches of 16 KiB at once, small enough to stay in the processor's cache."""

LARGE_BYTES = 32 * 1024
"""Larger requests are read into memory of their own."""

KEPT_BYTES = 16 * 1024 * 1024

DEFAULT_MAX_BYTES = 512 * 1024 * 1024
"""The bound where none is set. Kafka has none then."""


class ReadBuffers:
    """Buffers for requests, counted against one bound. `max_bytes` below 1: `DEFAULT_MAX_BYTES`."""

    def __init__(self, max_bytes: int = -1) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.max_bytes = max_bytes if max_bytes > 0 else DEFAULT_MAX_BYTES
        self.used_bytes = 0
        """Bytes received of large requests."""
        self.beyond: object | None = None
        """Connections that may continue although there is no room."""
        self._free: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._was_used = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def has_room(self) -> bool:
        """Whether one more may be begun."""
        return self.used_bytes < self.max_bytes

    @property
    def is_waited_for(self) -> bool:
        """Whether a connection waits for room."""
        return bool(self._waiting)

    def may_go_on(self, who: object) -> bool:
        """Whether `who`, if it has begun, may read more: there is room, or it is the one that goes beyond."""
        if self.used_bytes < self.max_bytes:
            return True
        if self.beyond is None:
            self.beyond = who
        return self.beyond is who

    def take(self, size: int) -> memoryview:
        """Return `size` bytes or more of memory. Its content is left over from others."""
        self._was_used = True
        size = 1 << (size - 1).bit_length()
        free = self._free.get(size)
        if free:
            self._kept_bytes -= size
            return free.pop()
        return memoryview(mmap.mmap(-1, size))

    def give_back(self, buffer: memoryview) -> None:
        """Take it back from its user; it must not be read any more."""
        size = len(buffer)
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            self._free.setdefault(size, []).append(buffer)

    def discount(self, size: int, who: object = None) -> None:
        """So many bytes of `who` are no longer needed: its request is over."""
        self.used_bytes -= size
        if self.beyond is who and who is not None:
            self.beyond = None
        if self._waiting and (self.has_room or self.beyond is None):
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once there may be room. It takes none right away, and asks again if others were sooner."""
        self._waiting.append(callback)

    def trim(self) -> None:
        """Let go what nobody has used since the last time."""
        if not self._was_used:
            self._free.clear()
            self._kept_bytes = 0
        self._was_used = False
