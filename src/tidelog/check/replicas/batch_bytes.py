"""Presents the batches of a log from an offset on as one byte stream.

Replicas contain the same sequence of batches, so the concatenated bytes of their segments are equal, although the segments end at
different offsets. Bytes that are not batches, as at the end of a preallocated file, are part of the stream. Nothing is
validated here: the caller looks for damage.
"""

from __future__ import annotations

import bisect
from itertools import accumulate

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.batch_walk import walk
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment


class BatchBytes:
    """The bytes of `log`, starting with the batch that contains `start` or the first one above it.

    Raises CorruptBatchError if that batch cannot be found, SegmentChangedError, StorageError.
    """

    def __init__(self, log: Log, start: int) -> None:
        self._segments = log.segments_from(start)
        self._skipped = 0
        """The number of bytes in the first segment before the stream."""
        self._seek(start)
        sizes = [segment.size_bytes for segment in self._segments]
        self._ends = [end - self._skipped for end in accumulate(sizes)]
        self._open = 0

    def _seek(self, start: int) -> None:
        while self._segments:
            first = self._segments[0]
            if first.base_offset >= start:
                return
            for header in first.headers(first.floor_position(start)):
                if header.last_offset >= start:
                    self._skipped = header.position
                    return
            self._segments = self._segments[1:]

    @property
    def size(self) -> int:
        """The number of bytes in the stream, by the files' sizes when the log was listed."""
        return self._ends[-1] if self._ends else 0

    def length_to(self, end: int) -> int:
        """Return the size in bytes of the batches that begin below the offset `end`.

        Raises CorruptBatchError if the log is damaged near `end`, SegmentChangedError, StorageError.
        """
        for number in reversed(range(len(self._segments))):
            segment = self._segments[number]
            begin = self._begin(number)
            if segment.base_offset >= end:
                continue
            position = segment.floor_position(end)
            for header in segment.headers(position):
                if (header.base_offset if header.magic == 2 else header.last_offset) >= end:
                    return max(begin + header.position, 0)
                position = header.end_position
            return max(begin + position, 0)
        return 0

    def read(self, at: int, length: int) -> bytes:
        """Return up to `length` bytes from `at` on; fewer only at the stream's end. Raises SegmentChangedError, StorageError."""
        pieces = []
        while length > 0 and at < self.size:
            number, position = self._find(at)
            self._close_before(number)
            segment = self._segments[number]
            size = min(length, segment.size_bytes - position)
            piece = segment.file.read(position, size)
            if len(piece) < size:
                raise SegmentChangedError(
                    "a segment was truncated while it was being read", path=segment.log_path, position=position
                )
            pieces.append(piece)
            at += size
            length -= size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def place(self, at: int) -> tuple[Segment, int] | None:
        """Return the segment of byte `at` and the position in it; None at the stream's end."""
        if at >= self.size:
            return None
        number, position = self._find(at)
        return self._segments[number], position

    def batch_start(self, at: int) -> tuple[int, int | None]:
        """Return the start of the batch that contains byte `at`, and the batch's expected base offset (None for the first batch).

        Walks the headers of one segment. Raises SegmentChangedError, StorageError.
        """
        number = min(bisect.bisect_right(self._ends, at), len(self._segments) - 1)
        if number < 0:
            return 0, None
        start = max(self._begin(number), 0)
        offset = None if number == 0 else self._segments[number].base_offset
        segment = self._segments[number]
        try:
            for header in walk(segment.file, start - self._begin(number), segment.size_bytes, min_offset=segment.base_offset):
                end = self._begin(number) + header.end_position
                if end > at:
                    break
                start, offset = end, header.next_offset
        except CorruptBatchError:
            pass  # This batch contains the byte, or the byte follows the last batch.
        return start, offset

    def _begin(self, number: int) -> int:
        """Return the stream position of a segment's start; negative if the stream begins inside the segment."""
        return self._ends[number - 1] if number else -self._skipped

    def _find(self, at: int) -> tuple[int, int]:
        number = bisect.bisect_right(self._ends, at)
        return number, at - self._begin(number)

    def _close_before(self, number: int) -> None:
        """Close the files of the segments before `number`: a log may have more files than a process may have open."""
        for segment in self._segments[self._open : number]:
            segment.close()
        self._open = max(self._open, number)
