"""An object as an open file. Opening it costs no request, because its size and identity come from the listing.

| a read of | is made |
|---|---|
| an index, a time map, a checkpoint, a log up to WHOLE_BYTES | whole, once |
| a few bytes of a larger log | at least one block (HEAD_BYTES, BLOCK_BYTES, FAR_BYTES); twice as much after a sequential read |
| a few bytes of such a log's last two blocks | by reading both blocks |
| a large part | in one request |
| ranges announced by `will_read`, or what follows many sequential reads | ahead, several requests at once (`read_ahead`) |

Whole objects and the first parts of logs are also cached on disk (`disk_cache`). The content of a handle never changes: reading
an object that has been overwritten raises SegmentChangedError.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from tidelog.objects.disk_cache import DiskCache
from tidelog.objects.listing import ObjectFacts, ObjectStore
from tidelog.objects.read_ahead import ReadAhead, Window


class Source(Protocol):
    """The part of a bucket's interface that a file needs (`object_path.ObjectSource`)."""

    @property
    def store(self) -> ObjectStore: ...
    @property
    def cache(self) -> DiskCache: ...
    @property
    def window(self) -> Window: ...
    @property
    def small(self) -> dict[str, memoryview]: ...
    def prefetch(self, key: str, fetch: Callable[[], memoryview], size_bytes: int) -> None: ...
    def fetched(self, key: str) -> Future[memoryview] | None: ...


HEAD_BYTES = 4 * 1024
"""How many bytes of a log's head are read first. Of many segments, only the first header is needed."""
BLOCK_BYTES = 16 * 1024
FAR_BYTES = 64 * 1024
"""The block size for a log of at least BIG_BYTES, and the largest gap between reads that still count as sequential."""
BIG_BYTES = 16 * 1024 * 1024
LARGE_BYTES = 256 * 1024
"""A read of at least this size becomes a single request for exactly these bytes."""
WHOLE_BYTES = 64 * 1024
"""The size up to which any object is read whole."""
SMALL_BYTES = 4 * 1024
_MOST_SMALL = 256
"""The maximum number of small objects kept in memory. Several callers read the same checkpoints."""
WHOLE_INDEX_BYTES = 16 * 1024 * 1024
"""The size up to which anything but a log is read whole."""
_NEAR_TAIL = 4
"""A read that is at most this many blocks before the last two blocks reads up to the end."""
_KEPT_PARTS = 8
_DOUBLINGS = 6
"""After this many sequential reads, each twice as large as the read before it, the rest of the object is read ahead."""
_SEQUENTIAL_PIECES = 8
"""How many pieces are then fetched ahead. Pieces that are not needed after all are wasted."""


class ObjectFile:
    """A handle for an object (`formats/paths/file_path.py`). Not thread-safe."""

    fd = -1
    is_constant = True

    def __init__(self, source: Source, key: str, facts: ObjectFacts, stat: os.stat_result) -> None:
        self._source = source
        self._object = key
        self._size = facts.size_bytes
        self._facts = facts
        self._stat = stat
        self._store = source.store
        self._is_whole = self._size <= (WHOLE_BYTES if key.endswith(".log") else WHOLE_INDEX_BYTES)
        self._parts: deque[tuple[int, memoryview]] = deque(maxlen=_KEPT_PARTS)
        """The most recently read parts, newest first: position and bytes."""
        self._ahead: ReadAhead | None = None
        self._told: Sequence[tuple[int, int]] = ()
        self._block = FAR_BYTES if self._size >= BIG_BYTES else BLOCK_BYTES
        self._tail = max(0, (self._size - 1) // self._block - 1) * self._block
        self._start, self._next, self._in_order = 0, -1, 0
        """The start and end of the last request, and how many sequential requests preceded it."""

    def stat(self) -> os.stat_result:
        return self._stat

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._size)
        if position >= end:
            return b""
        for start, part in self._parts:
            if start <= position and end <= start + len(part):
                return bytes(part[position - start : end - start])
        data = bytearray(end - position)
        self.read_into(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(len(buffer), self._size - position)
        count = 0
        while count < wanted:
            count += self._some(position + count, buffer[count:wanted])
        return max(count, 0)

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Begin to fetch ranges that are about to be read, in this order. Repeating the call has no effect."""
        if self._is_whole:
            self.prefetch()
        elif ranges != self._told:
            self._stop()
            self._told = ranges
            self._ahead = ReadAhead(self._fetch, ranges, window=self._source.window)

    def close(self) -> None:
        self._stop()
        self._told = ()
        self._parts.clear()

    def _some(self, position: int, buffer: memoryview) -> int:
        """Read at least one byte, and as many as are available without another request, into `buffer`. Return the number of
        bytes.
        """
        for start, part in self._parts:
            if start <= position < start + len(part):
                return _copy(part[position - start :], buffer)
        if self._ahead is not None:
            count = self._ahead.read_into(position, buffer)
            if count:
                return count
        if self._is_whole:
            part = self._kept(0, self._size, position)
            return _copy(part[position:], buffer)
        is_large = len(buffer) >= LARGE_BYTES
        if self._start < position <= self._next + FAR_BYTES:
            self._in_order += 2 if is_large else 1
            if self._in_order > _DOUBLINGS:
                self._stop()
                self._ahead = ReadAhead(self._fetch, [(position, self._size)], _SEQUENTIAL_PIECES, self._source.window)
                return self._ahead.read_into(position, buffer)
        else:
            self._in_order = 0
        if is_large:
            self._start, self._next = position, position + len(buffer)
            return _copy(self._fetch(position, self._next), buffer)
        block = HEAD_BYTES if position + len(buffer) <= HEAD_BYTES else self._block
        start = position // block * block
        end = -(-max(position + len(buffer), start + (block << self._in_order)) // block) * block
        if start >= self._tail:
            start, end = self._tail, self._size
        elif start >= self._tail - _NEAR_TAIL * self._block:
            end = self._size  # This is probably the last batch, whose end is read next.
        self._start = start
        part = self._kept(start, min(end, self._size), position)
        self._next = start + len(part)
        return _copy(part[position - start :], buffer)

    def prefetch(self) -> None:
        """Begin to fetch the parts that a search will need: a whole index, or the head and the last blocks of a log."""
        if self._is_whole:
            self._source.prefetch(self._key(0), partial(self._cached, 0, self._size), self._size)
            return
        self._source.prefetch(self._key(0), partial(self._cached, 0, HEAD_BYTES), HEAD_BYTES)
        self._source.prefetch(self._key(self._tail), partial(self._cached, self._tail, self._size), self._size - self._tail)

    def _stop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _fetch(self, start: int, end: int) -> memoryview:
        return self._store.read(self._object, self._facts, start, end)

    def _kept(self, start: int, end: int, position: int) -> memoryview:
        """Return the bytes from `start` to at least `position`: prefetched, from the disk cache, or by a request."""
        pending = self._source.fetched(self._key(start))
        part = None if pending is None else pending.result()
        if part is None or len(part) <= position - start:
            part = self._cached(start, end, position)
        self._parts.appendleft((start, part))
        return part

    def _key(self, start: int) -> str:
        return f"{self._source}\n{self._object}\n{self._facts}\n{start}"

    def _cached(self, start: int, end: int, position: int = 0) -> memoryview:
        key = self._key(start)
        known = self._source.small.get(key)
        if known is not None:
            return known
        kept = self._source.cache.get(key)
        if kept is not None and len(kept) > position - start:
            return memoryview(kept)
        part = self._fetch(start, end)
        self._source.cache.put(key, part)
        if self._is_whole and self._size <= SMALL_BYTES:
            if len(self._source.small) >= _MOST_SMALL:
                self._source.small.clear()
            self._source.small[key] = part
        return part


def _copy(part: memoryview, buffer: memoryview) -> int:
    count = min(len(part), len(buffer))
    buffer[:count] = part[:count]
    return count
