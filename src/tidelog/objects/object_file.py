"""An object as an open file. Opening it costs no request; its size and identity are those that were listed.

| read | how |
|---|---|
| an index, a time map, a checkpoint, a log up to WHOLE_BYTES | whole, once |
| a few bytes of a larger log | a block at least (HEAD_BYTES, BLOCK_BYTES, FAR_BYTES); twice as many after each read in order |
| a few bytes near its end | up to its end |
| a large part | in one request |
| what `will_read` announced, or what follows many reads in order | ahead, several requests at a time (`read_ahead`) |

Wholes and the first parts are also kept on the disk (`disk_cache`). The content of a handle never changes: reading an object that
was replaced raises SegmentChangedError.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.objects.listing import ObjectFacts
from tidelog.objects.read_ahead import ReadAhead

if TYPE_CHECKING:
    from tidelog.objects.object_path import ObjectPath

HEAD_BYTES = 4 * 1024
"""How much of a log's head is read at first: its first header is looked at in many segments of which no more is needed."""
BLOCK_BYTES = 16 * 1024
FAR_BYTES = 64 * 1024
"""The block of a log of at least BIG_BYTES, and a gap that reads in order may have."""
BIG_BYTES = 16 * 1024 * 1024
LARGE_BYTES = 256 * 1024
"""Reads of this size are made as they are."""
WHOLE_BYTES = 64 * 1024
"""The size up to which any object is read whole."""
WHOLE_INDEX_BYTES = 16 * 1024 * 1024
"""The size up to which anything but a log is read whole."""
_KEPT_PARTS = 8
_DOUBLINGS = 6
"""After so many reads in order, each twice as large as the one before, the rest is read ahead."""
_SEQUENTIAL_PIECES = 8
"""How much is then fetched ahead; what is not needed after all is wasted."""


class ObjectFile:
    """A handle (`formats/paths/file_path.py`). For one thread at a time."""

    fd = -1
    is_constant = True

    def __init__(self, path: ObjectPath, facts: ObjectFacts, stat: os.stat_result) -> None:
        self._path = path
        self._size = facts.size_bytes
        self._facts = facts
        self._stat = stat
        self._store = path.source.store
        self._is_whole = self._size <= (WHOLE_BYTES if path.suffix == ".log" else WHOLE_INDEX_BYTES)
        self._parts: deque[tuple[int, memoryview]] = deque(maxlen=_KEPT_PARTS)
        """The parts read last, the newest first: position and bytes."""
        self._ahead: ReadAhead | None = None
        self._block = FAR_BYTES if self._size >= BIG_BYTES else BLOCK_BYTES
        self._start, self._next, self._in_order = 0, -1, 0
        """Where the last request began and ended, and how many were in order until then."""

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
        """Begin to fetch ranges that are about to be read, in order."""
        if not self._is_whole:
            self._stop()
            self._ahead = ReadAhead(self._fetch, ranges)

    def close(self) -> None:
        self._stop()
        self._parts.clear()

    def _some(self, position: int, buffer: memoryview) -> int:
        """Read at least one byte, as many as are at hand; return the number."""
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
                self._ahead = ReadAhead(self._fetch, [(position, self._size)], _SEQUENTIAL_PIECES)
                return self._ahead.read_into(position, buffer)
        else:
            self._in_order = 0
        if is_large:
            self._start, self._next = position, position + len(buffer)
            return _copy(self._fetch(position, self._next), buffer)
        block = HEAD_BYTES if position + len(buffer) <= HEAD_BYTES else self._block
        self._start = start = position // block * block
        end = -(-max(position + len(buffer), start + (block << self._in_order)) // block) * block
        part = self._kept(start, self._size if end > self._size - self._block else end, position)
        self._next = start + len(part)
        return _copy(part[position - start :], buffer)

    def _stop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _fetch(self, start: int, end: int) -> memoryview:
        return self._store.read(self._path.key, self._facts, start, end)

    def _kept(self, start: int, end: int, position: int) -> memoryview:
        """Return the bytes from `start` on, past `position`, from the disk if they are kept there."""
        cache, key = self._path.source.cache, f"{self._path}\n{self._facts}\n{start}"
        kept = cache.get(key)
        if kept is not None and len(kept) > position - start:
            part = memoryview(kept)
        else:
            part = self._fetch(start, end)
            cache.put(key, part)
        self._parts.appendleft((start, part))
        return part


def _copy(part: memoryview, buffer: memoryview) -> int:
    count = min(len(part), len(buffer))
    buffer[:count] = part[:count]
    return count
