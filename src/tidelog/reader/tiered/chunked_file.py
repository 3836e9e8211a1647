"""Reads a file that was cut into chunks of equal size, each compressed or encrypted, and stored one after the other.

A read fetches all the chunks that it needs at once, then decrypts and decompresses each. The most recent chunks are kept, because
headers are read in small steps.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog.errors import CorruptDataError
from tidelog.formats.paths.file_path import FilePath, Handle
from tidelog.reader.tiered.layout import copy_into, stat_of

KEPT_BYTES = 16 * 1024 * 1024
"""How many bytes of a file are kept in memory after they were read; at least one chunk is kept."""


class Chunks(NamedTuple):
    """The positions of a file's chunks. Each chunk but the last has `chunk_bytes` of the file."""

    chunk_bytes: int
    size_bytes: int
    stored_bytes: Sequence[int]
    """The size of each chunk in storage."""

    def check(self) -> None:
        """Raise ValueError if the chunk count, chunk size and file size contradict each other."""
        expected = -(-self.size_bytes // self.chunk_bytes) if self.chunk_bytes > 0 else -1
        # An empty file may have one chunk, which is empty.
        if self.size_bytes < 0 or len(self.stored_bytes) != max(expected, 1) or min(self.stored_bytes) < 0:
            raise ValueError(
                f"{len(self.stored_bytes)} chunks of {self.chunk_bytes} bytes do not add up to a file of {self.size_bytes} bytes"
            )


class ChunkedHandle:
    """A handle for the file whose chunks are in `stored`. `opened` decodes a stored chunk to `size` bytes, and raises
    CorruptDataError.
    """

    fd = -1
    is_constant = False

    def __init__(self, stored: Handle, chunks: Chunks, opened: Callable[[bytes, int], bytes], path: FilePath) -> None:
        self._stored = stored
        self._chunks = chunks
        self._opened = opened
        self._path = path
        self._starts = list(accumulate(chunks.stored_bytes, initial=0))
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def stat(self) -> os.stat_result:
        return stat_of(self._chunks.size_bytes)

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._chunks.size_bytes)
        if position >= end:
            return b""
        size = self._chunks.chunk_bytes
        first, last = position // size, (end - 1) // size
        found = b"".join(self._read(first, last))
        return found[position - first * size : end - first * size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        return copy_into(buffer, self.read(position, len(buffer)))

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        size, last = self._chunks.chunk_bytes, len(self._chunks.stored_bytes)
        self._stored.will_read(
            [(self._starts[start // size], self._starts[min(-(-end // size), last)]) for start, end in ranges if start < end]
        )

    def close(self) -> None:
        self._kept.clear()
        self._stored.close()

    def _read(self, first: int, last: int) -> list[bytes]:
        """Return the decoded chunks from `first` to `last`."""
        with self._lock:
            found = {number: self._kept[number] for number in range(first, last + 1) if number in self._kept}
        wanted = [number for number in range(first, last + 1) if number not in found]
        if wanted:
            start, end = self._starts[wanted[0]], self._starts[wanted[-1] + 1]
            data = self._stored.read(start, end - start)
            if len(data) != end - start:
                text = "a remote file is shorter than its manifest says"
                raise CorruptDataError(text, path=self._path, position=start, found=len(data), expected=end - start)
            for number in wanted:
                piece = data[self._starts[number] - start : self._starts[number + 1] - start]
                found[number] = self._open(number, piece)
        most = max(1, KEPT_BYTES // self._chunks.chunk_bytes)
        with self._lock:
            self._kept.update((number, found[number]) for number in wanted[-most:])
            while len(self._kept) > most:
                self._kept.popitem(last=False)
        return [found[number] for number in range(first, last + 1)]

    def _open(self, number: int, piece: bytes) -> bytes:
        begin = number * self._chunks.chunk_bytes
        size = min(self._chunks.chunk_bytes, self._chunks.size_bytes - begin)
        chunk = self._opened(piece, size)
        if len(chunk) != size:
            text = f"chunk {number} of a remote file has the wrong size"
            position = self._starts[number]
            raise CorruptDataError(
                text, path=self._path, position=position, found=f"{len(chunk)} bytes", expected=f"{size} bytes"
            )
        return chunk
