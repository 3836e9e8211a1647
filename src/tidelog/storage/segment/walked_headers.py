"""Walks the headers of a segment's batches once, and remembers points at intervals.

The headers replace an index that is wrong, too short or not checked yet. They show which batch has an offset, which batch is the
first with a timestamp at or after a time, and the largest timestamp before a position. A gigabyte in batches of 16 KiB needs
69,000 reads, too many for a thread that serves clients. Within `non_blocking`, therefore, at most `POINT_BATCHES` or
`POINT_BYTES` are walked at once. Then `NotWalkedError` is raised; its `prefetch` continues for another `PIECE_S` seconds on the
thread that waits for the disk. The caller retries until the headers are known; other work does not wait.

Each point is a batch: its position, and the next offset and largest timestamp of all batches before it. The points of a gigabyte
take 96 KiB of memory, or 500 KiB with the smallest batches. All points of a thread together take at most `MAX_KEPT_BYTES`.

Not thread-safe. The results of `prefetch` are handed over, and used if they continue from the last point.
"""

from __future__ import annotations

import os
import threading
import weakref
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.formats.batch_walk import Readable, iter_times
from tidelog.formats.non_blocking_read import NotCachedError, is_non_blocking
from tidelog.model import MAX_OFFSET, NO_TIMESTAMP
from tidelog.records.kernel import walk_times
from tidelog.storage.segment.log_file import LogFile

POINT_BATCHES = 512
POINT_BYTES = 256 * 1024
"""The most bytes between two points, except for a single larger batch."""
PIECE_S = 0.02
MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_TABLES = 64
"""The most walks that are kept of one segment, each of which began at a different batch."""

_NEVER = 2**63 - 1
_POINT_BYTES = 24
_AHEAD_BYTES = 16 * 1024 * 1024
_SLOW_S = 20e-6
"""A header that took longer than this (seconds, on average) was not in memory."""
_FEW = 8


def is_far(batches: int, distance_bytes: int) -> bool:
    """Whether a walk over batches has become too long, so that it should continue from headers walked earlier."""
    return batches >= POINT_BATCHES or (batches > _FEW and distance_bytes > POINT_BYTES)


class Goal(NamedTuple):
    """Where a walk may end: at a position, at the batch with an offset, or at a batch with a timestamp at or after a time (ms),
    whichever comes first.
    """

    position: int = _NEVER
    offset: int = MAX_OFFSET
    timestamp: int = _NEVER


class _Place(NamedTuple):
    """A batch's position, and the next offset and largest timestamp (ms, -1 for none) of all batches before it."""

    position: int
    next_offset: int
    latest: int


class NotWalkedError(NotCachedError):
    """Headers are needed that were not walked yet."""

    is_progress = True

    def __init__(self, headers: WalkedHeaders, goal: Goal) -> None:
        log = headers.log
        super().__init__(log.descriptor(), headers.end.position, 0)
        self._headers = headers
        self._file = _File(log.path, self._fd)
        self._start = headers.end
        self._goal = goal
        self._end_position = log.size_bytes

    def prefetch(self) -> None:
        """Continue the walk for a while. Raises OSError. An invalid batch is left to the caller, which gets the error when it
        retries.
        """
        try:
            found = _walk_piece(self._file, self._start, self._goal, self._end_position, perf_counter() + PIECE_S)
            self._headers.hand_over(self._start, found)
        finally:
            self.close()


class WalkedHeaders:
    """The batches of one `.log` that have been walked so far, starting with a given batch.

    All methods that walk raise CorruptBatchError for an impossible header, StorageError, and NotWalkedError within
    `non_blocking`.
    """

    def __init__(self, log: LogFile, position: int, min_offset: int) -> None:
        self.log = log
        self._positions = array("q", [position])
        self._next_offsets = array("q", [min_offset])
        self._latest = array("q", [NO_TIMESTAMP])
        self._batches_in_last = 0
        self._found: list[tuple[_Place, list[tuple[_Place, int]]]] = []
        """Results of walks on other threads."""

    @property
    def end(self) -> _Place:
        """The end of the walk so far."""
        return _Place(self._positions[-1], self._next_offsets[-1], self._latest[-1])

    @property
    def size_bytes(self) -> int:
        """The memory that the recorded points use, in bytes."""
        return len(self._positions) * _POINT_BYTES

    # --- asking

    def largest(self) -> int:
        """Return the largest timestamp (ms, -1 for none) of all batches in the log."""
        self.walk(Goal(self.log.size_bytes))
        return self._latest[-1]

    def largest_before(self, position: int) -> int:
        """Return the largest timestamp (ms, -1 for none) of the batches before `position`. Raises CorruptBatchError if no batch
        begins at `position`.
        """
        self.walk(Goal(position))
        slot = bisect_right(self._positions, position) - 1
        near = iter_times(self.log, self._positions[slot], position, self._next_offsets[slot])
        return max(self._latest[slot], max((timestamp for _, _, timestamp in near), default=NO_TIMESTAMP))

    def first_reaching(self, timestamp: int) -> int | None:
        """Return a byte position at or shortly before the first batch with a timestamp at or after `timestamp` (ms), or None if
        there is no such batch.
        """
        self.walk(Goal(self.log.size_bytes, timestamp=timestamp))
        slot = bisect_left(self._latest, timestamp, 1)
        return self._positions[slot - 1] if slot < len(self._latest) else None

    def floor(self, offset: int) -> int:
        """Return a byte position at or shortly before the batch with `offset`: all earlier batches have lower offsets."""
        self.walk(Goal(self.log.size_bytes, offset=offset))
        return self.known_floor(offset)

    def known_floor(self, offset: int) -> int:
        """Return the nearest known byte position at or before the batch with `offset`, without a walk."""
        self._take()
        return self._positions[max(0, bisect_right(self._next_offsets, offset) - 1)]

    # --- walking

    def walk(self, goal: Goal) -> None:
        """Ensure that the headers are known up to `goal`, or to the end of the log."""
        self._take()
        end_position = self.log.size_bytes
        if _is_there(self.end, goal, end_position):
            return
        if is_non_blocking():
            try:
                self._add(*_step(self.log, self.end, end_position))
            except NotCachedError:
                raise NotWalkedError(self, goal) from None
            if not _is_there(self.end, goal, end_position):
                raise NotWalkedError(self, goal)
        else:
            file = _File(self.log.path, self.log.descriptor())
            while not _is_there(self.end, goal, end_position):
                self._add(*_follow(file, self.end, end_position) or _step(self.log, self.end, end_position))

    def hand_over(self, start: _Place, found: list[tuple[_Place, int]]) -> None:
        """Add the results of a walk from `start`: places, with the number of batches up to each. Any thread may call this."""
        self._found.append((start, found))

    def _take(self) -> None:
        while self._found:
            start, found = self._found.pop(0)
            if start == self.end:
                for place, batches in found:
                    self._add(place, batches)

    def _add(self, place: _Place, batches: int) -> None:
        """Remember a place. If the previous place is near, it is dropped, because a log may grow by one batch at a time."""
        positions = self._positions
        total = self._batches_in_last + batches
        if len(positions) > 1 and total <= POINT_BATCHES and place.position - positions[-2] <= POINT_BYTES:
            del positions[-1], self._next_offsets[-1], self._latest[-1]
        else:
            total = batches
        positions.append(place.position)
        self._next_offsets.append(place.next_offset)
        self._latest.append(place.latest)
        self._batches_in_last = total


class WalkedSegment:
    """All walks of one segment, by their starts."""

    def __init__(self, log: LogFile, base_offset: int) -> None:
        self._log = log
        self._base_offset = base_offset
        self._tables: dict[int, WalkedHeaders] = {}
        self.key = weakref.ref(self)

    def beginning_at(self, position: int) -> WalkedHeaders:
        """Return the headers walked from a position, where a batch begins."""
        headers = self._tables.pop(position, None)
        if headers is None:
            if len(self._tables) >= MAX_TABLES:
                del self._tables[next(iter(self._tables))]
            headers = WalkedHeaders(self._log, position, self._base_offset)
        self._tables[position] = headers
        _kept.keep(self)
        return headers

    def has_begun_at(self, position: int) -> bool:
        """Whether a walk from that position has results."""
        return position in self._tables

    def known_floor(self, position: int, offset: int) -> int:
        """Return a byte position shortly before `offset` if a walk from `position` has found one; otherwise return `position`."""
        headers = self._tables.get(position)
        return position if headers is None else headers.known_floor(offset)

    def forget(self) -> None:
        """Release the memory."""
        self._tables.clear()

    @property
    def size_bytes(self) -> int:
        """The memory that the recorded points of all walks use, in bytes."""
        return sum(headers.size_bytes for headers in self._tables.values())


class _Kept(threading.local):
    """One thread's segments with walked headers, the least recently used first, and the size of each at its last use."""

    def __init__(self) -> None:
        self._sizes: dict[weakref.ref[WalkedSegment], int] = {}
        self._total_bytes = 0

    def keep(self, one: WalkedSegment) -> None:
        sizes, key = self._sizes, one.key
        size = one.size_bytes
        self._total_bytes += size - sizes.pop(key, 0)
        sizes[key] = size
        while self._total_bytes > MAX_KEPT_BYTES and len(sizes) > 1:
            oldest = next(iter(sizes))
            self._total_bytes -= sizes.pop(oldest)
            segment = oldest()
            if segment is not None:
                segment.forget()


_kept = _Kept()


class _File:
    """An open `.log`, which is read whether or not its bytes are in memory."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self.fd, length, position)


def _is_there(place: _Place, goal: Goal, end_position: int) -> bool:
    return place.position >= min(goal.position, end_position) or place.next_offset > goal.offset or place.latest >= goal.timestamp


def _walk_piece(file: _File, place: _Place, goal: Goal, end_position: int, until: float) -> list[tuple[_Place, int]]:
    """Walk until the time `until`; return the arguments for `hand_over`. Raises OSError."""
    found: list[tuple[_Place, int]] = []
    is_slow = False
    while not _is_there(place, goal, end_position):
        began = perf_counter()
        if is_slow and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fd, place.position, _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        try:
            followed = _follow(file, place, end_position) or _step(file, place, end_position)
        except TidelogError:
            break  # The retrying thread meets the error again, and can report it.
        found.append(followed)
        place = followed[0]
        now = perf_counter()
        is_slow = now - began > followed[1] * _SLOW_S
        if now >= until:
            break
    return found


def _follow(file: _File, place: _Place, end_position: int) -> tuple[_Place, int] | None:
    """Follow batches by the kernel. Return the position after them and the number of batches, or None if the kernel does not
    accept the first batch.
    """
    position, min_offset, latest = place
    ends, times = array("q", bytes(8 * POINT_BATCHES)), array("q", bytes(8 * POINT_BATCHES))
    stop = min(end_position, position + POINT_BYTES)
    count, next_offset = walk_times(file.fd, position, stop, min_offset, latest, ends, times)
    if not count and stop < end_position:  # A batch may be larger than that.
        ends, times = ends[:1], times[:1]
        count, next_offset = walk_times(file.fd, position, end_position, min_offset, latest, ends, times)
    return (_Place(ends[count - 1], next_offset, times[count - 1]), count) if count else None


def _step(file: Readable, place: _Place, end_position: int) -> tuple[_Place, int]:
    """Do what `_follow` does, for batches of any kind."""
    position, next_offset, _ = place
    count = 0
    for end, following, timestamp in islice(iter_times(file, position, end_position, next_offset), POINT_BATCHES):
        if count and end - position > POINT_BYTES:
            break
        place = _Place(end, following, max(place.latest, timestamp))
        count += 1
    return place, count
