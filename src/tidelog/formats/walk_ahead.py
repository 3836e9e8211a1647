"""A second walk through the batch headers of a segment, on another thread, starting in the middle.

Only the offset index says where a batch in the middle begins, and the index may be wrong. So the second walk's result counts only
if the first walk arrives exactly at the second walk's start, and with no later offset. Then the result is what the first walk
would have found. The first walk does not wait: it takes the finished part of the result, and continues after it. Both walks use
the walk kernel, which runs without the GIL.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_right

from tidelog.records.kernel import walk_times

_CHUNK = 2048
"""Batches per kernel call."""
_OFFSET_BYTES = 8


class WalkAhead:
    """A walk from `start` to `end`, over at most `max_batches` batches. It begins at once, and ends at these limits or when
    `stop` is called.
    """

    def __init__(self, fd: int, start: int, end: int, max_batches: int) -> None:
        self.start = start
        self._end = end
        self._max_batches = max_batches
        self._is_stopped = False
        self._base_offset = -1
        self._found: list[tuple[array[int], array[int], int]] = []
        """Per chunk: the batches' ends, the largest timestamps since `start`, and the offset after the last batch."""
        # A separate executor, because nothing waits for the walk to end.
        self._fd = os.dup(fd)
        threading.Thread(target=self._run, name="walk-ahead", daemon=True).start()

    def stop(self) -> None:
        """Request the end of the walk, without waiting for it. Idempotent."""
        self._is_stopped = True

    def take(self, position: int, next_offset: int, latest: int) -> tuple[array[int], array[int], int] | None:
        """End the walk; return its batches' ends, the largest timestamp up to each, and the offset after the last batch.

        Return None if this walk does not continue the first walk, which has reached `position`, `next_offset`, and the largest
        timestamp `latest` (ms).
        """
        self.stop()
        found = list(self._found)
        if position != self.start or not found or next_offset > self._base_offset:
            return None
        ends, largest = array("q"), array("q")
        for some_ends, some_largest, _ in found:
            ends += some_ends
            largest += some_largest
        later = bisect_right(largest, latest)
        return ends, array("q", [latest]) * later + largest[later:], found[-1][2]

    def _run(self) -> None:
        try:
            self._walk()
        except OSError:
            return  # The first walk will arrive there and report the damage.
        finally:
            os.close(self._fd)

    def _walk(self) -> None:
        self._base_offset = next_offset = int.from_bytes(os.pread(self._fd, _OFFSET_BYTES, self.start), "big", signed=True)
        position, largest, left = self.start, -1, self._max_batches
        while position < self._end and left and not self._is_stopped:
            room = min(_CHUNK, left)
            ends, times = array("q", bytes(8 * room)), array("q", bytes(8 * room))
            count, next_offset = walk_times(self._fd, position, self._end, next_offset, largest, ends, times)
            if not count:
                return
            del ends[count:], times[count:]
            self._found.append((ends, times, next_offset))
            position, largest, left = ends[-1], times[-1], left - count
