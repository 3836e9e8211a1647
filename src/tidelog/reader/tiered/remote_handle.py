"""Handles for remote files that report the stat result of their path: for one file, or for ranges of several files as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog.formats.paths.file_path import Handle


class RemoteHandle:
    """A handle for a remote file that reports the stat result of its path. A cut file ends at the size in that result."""

    fd = -1
    is_constant = False

    def __init__(self, handle: Handle, stat: os.stat_result) -> None:
        self._handle = handle
        self._stat = stat

    def stat(self) -> os.stat_result:
        return self._stat

    def read(self, position: int, length: int) -> bytes:
        return self._handle.read(position, max(0, min(length, self._stat.st_size - position)))

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._handle.read_into(position, buffer[: max(0, self._stat.st_size - position)])

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._handle.will_read(ranges)

    def close(self) -> None:
        self._handle.close()


class Part(NamedTuple):
    """A range of a file: `size_bytes` bytes from `start`. `open` opens the file."""

    open: Callable[[], Handle]
    start: int
    size_bytes: int


class JoinedHandle:
    """A handle for the concatenation of several parts, which reports the stat result of a former local file. Each part is opened
    when it is first read.
    """

    fd = -1
    is_constant = False

    def __init__(self, parts: Sequence[Part], stat: os.stat_result) -> None:
        self._parts = parts
        self._ends = list(accumulate(part.size_bytes for part in parts))
        self._stat = stat
        self._opened: dict[int, Handle] = {}

    def stat(self) -> os.stat_result:
        return self._stat

    def read(self, position: int, length: int) -> bytes:
        data = bytearray(max(0, min(length, self._ends[-1] - position)))
        return bytes(data[: self.read_into(position, memoryview(data))])

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = 0
        for number, (part, end) in enumerate(zip(self._parts, self._ends, strict=True)):
            at = position + count
            if at < end and count < len(buffer):
                room = buffer[count : count + end - at]
                found = self._handle(number).read_into(part.start + at - (end - part.size_bytes), room)
                count += found
                if found < len(room):
                    break
        return count

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        for number, (part, end) in enumerate(zip(self._parts, self._ends, strict=True)):
            begin = end - part.size_bytes
            within = [(max(first, begin), min(last, end)) for first, last in ranges if first < end and last > begin]
            if within:
                shift = part.start - begin
                self._handle(number).will_read([(first + shift, last + shift) for first, last in within])

    def close(self) -> None:
        for handle in self._opened.values():
            handle.close()
        self._opened.clear()

    def _handle(self, number: int) -> Handle:
        if number not in self._opened:
            self._opened[number] = self._parts[number].open()
        return self._opened[number]
