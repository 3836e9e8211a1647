"""Fetches ranges of an object before they are needed, several at a time, and delivers them in order.

Ranges are cut into pieces of PIECE_BYTES. Ranges that are close to each other are joined: a request takes longer than the bytes
between them. At most IN_FLIGHT pieces are fetched or kept, so memory is bounded by their product.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

PIECE_BYTES = 2 * 1024 * 1024
IN_FLIGHT = 12
JOIN_BYTES = 64 * 1024
"""Ranges with a smaller gap are joined."""
THREADS = 24

_executors: list[ThreadPoolExecutor] = []


def executor() -> ThreadPoolExecutor:
    """Return the threads that fetch, shared by all objects of this process."""
    if not _executors:
        _executors.append(ThreadPoolExecutor(THREADS, "tidelog-objects"))
    return _executors[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executors.clear)  # A child has none of the threads.


class ReadAhead:
    """Fetches ranges, ascending and disjoint, with `fetch(start, end)`."""

    def __init__(
        self, fetch: Callable[[int, int], memoryview], ranges: Iterable[tuple[int, int]], in_flight: int = IN_FLIGHT
    ) -> None:
        self._fetch = fetch
        self._in_flight = in_flight
        self._todo = _pieces(ranges)
        self._pieces: deque[tuple[int, int, Future[memoryview]]] = deque()
        self._top_up()

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Copy what is fetched from `position` on; return the number of bytes, 0 if the position is in no range.

        Raises the errors of `fetch`. Bytes before `position` are then forgotten.
        """
        if not self._pieces or position < self._pieces[0][0]:
            return 0
        while self._pieces and self._pieces[0][1] <= position:
            self._pieces.popleft()
            self._top_up()
        count = 0
        while count < len(buffer):
            at = position + count
            piece = next((one for one in self._pieces if one[0] <= at < one[1]), None)
            if piece is None:
                break
            data = piece[2].result()[at - piece[0] : at - piece[0] + len(buffer) - count]
            buffer[count : count + len(data)] = data
            count += len(data)
        return count

    def close(self) -> None:
        """Fetch nothing more. Does not wait for what is being fetched."""
        self._todo = iter(())
        for _, _, future in self._pieces:
            future.cancel()
        self._pieces.clear()

    def _top_up(self) -> None:
        for start, end in islice(self._todo, self._in_flight - len(self._pieces)):
            self._pieces.append((start, end, executor().submit(self._fetch, start, end)))


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
