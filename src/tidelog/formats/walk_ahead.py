"""A second walk through the headers of a segment, on another thread, from the middle on.

Nothing but the offset index says where in the middle a batch begins, and that may be wrong. So what the second walk has found
counts only where the first one arrives exactly at its start, with no later offset than stands there: then it is what the first
one would have found. The first one waits for nothing: it takes what is there, and continues after it. Both are the walk kernel's,
which holds no lock of the interpreter.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_right

from tidelog.records.kernel import walk_times

_CHUNK = 2048
"""Batches that the kernel follows at a time."""
_OFFSET_BYTES = 8


class WalkAhead:
    """A walk from `start` up to `end`, at most so many batches; begun at once, over when `stop` is called or it is there."""

    def __init__(self, fd: int, start: int, end: int, max_batches: int) -> None:
        self.start = start
        self._end = end
        self._max_batches = max_batches
        self._is_stopped = False
        self._base_offset = -1
        self._found: list[tuple[array[int], array[int], int]] = []
        """Chunk by chunk: where batches end, the largest timestamps since `start`, the offset after the last one."""
        # Its own, because its end is not waited for.
        self._fd = os.dup(fd)
        threading.Thread(target=self._run, name="walk-ahead", daemon=True).start()

    def stop(self) -> None:
        """End it, soon. Idempotent."""
        self._is_stopped = True

    def take(self, position: int, next_offset: int, latest: int) -> tuple[array[int], array[int], int] | None:
        """End it; return where its batches end, the largest timestamps up to each, and the offset after them.

        None if it does not continue where the first walk stands: at `position`, before `next_offset`, after `latest` (ms).
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
            return  # The first walk comes by there, and reports it.
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
