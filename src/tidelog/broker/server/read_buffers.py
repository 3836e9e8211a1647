"""The memory that requests are read into. One for each server.

| | for | copied |
|---|---|---|
| `shared` | small frames: they are answered while they are in there, before anybody else is read | what is left over |
| `take`, `give_back` | one larger frame at a time, of one connection | nothing |

Buffers that were given back are kept, some of them: memory that was never touched costs a page fault for every 4 KiB, more than
receiving the bytes. They are anonymous maps: a peer that announces 100 MiB and sends nothing costs nothing.

`max_bytes` (`queued.max.request.bytes`) bounds what is taken at the same time, over all connections: who finds no room is called
later. As in Kafka the last one may go beyond, by one request.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

SHARED_BYTES = 128 * 1024
"""Large enough for some batches of 16 KiB at once, small enough to stay in the processor's cache."""

LARGE_BYTES = 32 * 1024
"""What is larger is read into memory of its own."""

KEPT_BYTES = 16 * 1024 * 1024


class ReadBuffers:
    """See the module. `max_bytes` below 1: no bound."""

    def __init__(self, max_bytes: int = -1) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.used_bytes = 0
        self._max_bytes = max_bytes
        self._free: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._was_used = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def has_room(self) -> bool:
        """Whether one more may be taken."""
        return self._max_bytes < 1 or self.used_bytes < self._max_bytes

    def take(self, size: int) -> memoryview:
        """Return `size` bytes or more of memory. What is in there is left from others."""
        self._was_used = True
        size = 1 << (size - 1).bit_length()
        self.used_bytes += size
        free = self._free.get(size)
        if free:
            self._kept_bytes -= size
            return free.pop()
        return memoryview(mmap.mmap(-1, size))

    def give_back(self, buffer: memoryview) -> None:
        """Take it back from who used it; nobody may look at it any more."""
        size = len(buffer)
        self.used_bytes -= size
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            self._free.setdefault(size, []).append(buffer)
        if self._waiting and self.has_room:
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
