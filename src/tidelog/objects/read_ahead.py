"""Fetches ranges of an object before they are needed, several in parallel, and delivers them in order.

Ranges are cut into pieces of PIECE_BYTES. Ranges that are close to each other are joined, because a request takes longer than
transferring the bytes between them. All files of a source share a `Window`. At most IN_FLIGHT pieces are being fetched or kept;
only a file that is being read and has none gets one more. So memory is bounded by about IN_FLIGHT * PIECE_BYTES. While the end of
a file is being fetched, the next announced file already uses the rest of the window.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

PIECE_BYTES = 2 * 1024 * 1024
IN_FLIGHT = 16
JOIN_BYTES = 64 * 1024
"""Ranges with a smaller gap are joined."""
THREADS = 24

_executors: list[ThreadPoolExecutor] = []


def executor() -> ThreadPoolExecutor:
    """Return the thread pool for fetches, which all objects of this process share."""
    if not _executors:
        _executors.append(ThreadPoolExecutor(THREADS, "tidelog-objects"))
    return _executors[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executors.clear)  # A forked child has none of the threads.


class Window:
    """Limits how many pieces are being fetched or kept, over all files that are read. Files that were announced first come
    first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[ReadAhead] = []

    def fill(self, reader: ReadAhead, *, is_new: bool = False, is_done: bool = False) -> None:
        """Begin to fetch as many pieces as the window has room for, and at least one piece for `reader`, which is being read."""
        with self._lock:
            if is_new:
                self._readers.append(reader)
            if is_done:
                self._readers = [one for one in self._readers if one is not reader]
            room = IN_FLIGHT - sum(one.pieces for one in self._readers)
            for one in self._readers:
                room -= one.begin(room)
            if not (is_new or is_done or reader.pieces):
                reader.begin(1)


class ReadAhead:
    """Fetches ascending, disjoint ranges with `fetch(start, end)`, as many pieces in parallel as the window allows."""

    def __init__(
        self,
        fetch: Callable[[int, int], memoryview],
        ranges: Iterable[tuple[int, int]],
        in_flight: int = IN_FLIGHT,
        window: Window | None = None,
    ) -> None:
        self._fetch = fetch
        self._in_flight = in_flight
        self._todo = _pieces(ranges)
        self._pieces: deque[tuple[int, int, Future[memoryview]]] = deque()
        self._window = window or Window()
        self._window.fill(self, is_new=True)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Copy the fetched bytes at `position` into `buffer`. Return the number of bytes, 0 if the position is in no range.

        Bytes before `position` are dropped. Raises the errors of `fetch`.
        """
        while not self._pieces or self._pieces[0][1] <= position:
            if self._pieces:
                self._pieces.popleft()
            self._window.fill(self)
            if not self._pieces:
                return 0
        count = index = 0
        while count < len(buffer) and index < len(self._pieces):  # Use an index: another thread may append pieces meanwhile.
            start, end, future = self._pieces[index]
            if not start <= position + count < end:
                break
            data = future.result()[position + count - start :][: len(buffer) - count]
            buffer[count : count + len(data)] = data
            count += len(data)
            index += 1
        return count

    def close(self) -> None:
        """Stop fetching. Do not wait for pieces that are being fetched."""
        self._todo = iter(())
        for _, _, future in self._pieces:
            future.cancel()
        self._pieces.clear()
        self._window.fill(self, is_done=True)

    @property
    def pieces(self) -> int:
        """The number of pieces that are being fetched or kept."""
        return len(self._pieces)

    def begin(self, room: int) -> int:
        """Begin to fetch up to `room` more pieces. Return how many were begun. Only the window calls this, from one thread at a
        time.
        """
        count = 0
        while count < room and len(self._pieces) < self._in_flight and (piece := next(self._todo, None)) is not None:
            self._pieces.append((*piece, executor().submit(self._fetch, *piece)))
            count += 1
        return count


def _pieces(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in _joined(ranges):
        for at in range(start, end, PIECE_BYTES):
            yield at, min(at + PIECE_BYTES, end)


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for start, end in ranges:
        if last is not None and start - last[1] <= JOIN_BYTES:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last
