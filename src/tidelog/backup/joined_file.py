"""Presents several objects, or bytes, as one open file.

An object that is missing, or is removed while it is read, is an error, and never the end of the file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog.errors import CorruptDataError, SegmentChangedError, TidelogError
from tidelog.formats.paths.file_path import FilePath, Handle
from tidelog.formats.paths.local_handle import open_handle


class Part(NamedTuple):
    """A part of a file: an object of known size, or bytes."""

    size_bytes: int
    path: FilePath | None
    data: bytes = b""


class JoinedFile:
    """A handle on the joined file (`formats/paths/file_path.py`). Each part is opened when it is first read. Raises
    CorruptDataError for a part that is missing or has the wrong size, or what `cause_of` makes of that error.
    """

    fd = -1
    is_constant = True

    def __init__(
        self, parts: Sequence[Part], stat: os.stat_result, cause_of: Callable[[TidelogError], TidelogError] = lambda error: error
    ) -> None:
        self._parts = parts
        self._cause_of = cause_of
        self._stat = stat
        self._starts = [0, *accumulate(part.size_bytes for part in parts)]
        self._opened: dict[int, Handle] = {}

    def stat(self) -> os.stat_result:
        return self._stat

    def read(self, position: int, length: int) -> bytes:
        wanted = max(0, min(length, self._starts[-1] - position))
        data = bytearray(wanted)
        self.read_into(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = max(0, min(len(buffer), self._starts[-1] - position))
        count = 0
        while count < wanted:
            at = position + count
            slot = bisect_right(self._starts, at) - 1
            start, end = self._starts[slot], self._starts[slot + 1]
            some = min(wanted - count, end - at)
            self._read_part(slot, at - start, buffer[count : count + some])
            count += some
        return count

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        for slot in range(len(self._parts)):
            start, end = self._starts[slot], self._starts[slot + 1]
            inside = [(max(low, start) - start, min(high, end) - start) for low, high in ranges if low < end and high > start]
            if inside and self._parts[slot].path is not None:
                self._handle(slot).will_read(inside)

    def close(self) -> None:
        while self._opened:
            self._opened.popitem()[1].close()

    def _read_part(self, slot: int, position: int, buffer: memoryview) -> None:
        part = self._parts[slot]
        if part.path is None:
            buffer[:] = part.data[position : position + len(buffer)]
            return
        try:
            count = self._handle(slot).read_into(position, buffer)
        except SegmentChangedError as error:  # A reader would take it for the work of retention, and go on without the records.
            text = f"an object of the backup is missing: {error.message}"
            raise self._cause_of(CorruptDataError(text, path=part.path)) from error
        if count != len(buffer):
            raise CorruptDataError(
                "an object of the backup is truncated", path=part.path, position=position, found=count, expected=len(buffer)
            )

    def _handle(self, slot: int) -> Handle:
        handle = self._opened.get(slot)
        if handle is None:
            part = self._parts[slot]
            assert part.path is not None
            try:
                handle = open_handle(part.path)
            except FileNotFoundError:
                raise self._cause_of(CorruptDataError("an object of the backup is missing", path=part.path)) from None
            size_bytes = handle.stat().st_size
            if size_bytes != part.size_bytes:
                handle.close()
                text = "an object of the backup has the wrong size"
                raise CorruptDataError(text, path=part.path, found=size_bytes, expected=part.size_bytes)
            self._opened[slot] = handle
        return handle
