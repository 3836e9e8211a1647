"""Finds the largest timestamp before each batch of a segment, from the batch headers. Each header is read once, within a budget.

A time index entry claims that every earlier batch is before its timestamp. No checksum covers this claim, and the entry's own
batch does not prove it; only the headers of all earlier batches do. A log has one budget for all its segments. The budget is
large: in a log of one gigabyte, reading all headers takes less time than starting a process. In larger logs the remaining entries
are trusted if their neighbours agree, and `WalkBudget.note_end` reports that.

The walk kernel reads headers, one `pread` each, with two threads if there are many (`formats.walk_ahead`). If they are not
cached, the operating system is asked to read ahead: single headers from a disk would take longer than the whole log.

The results are kept: for each batch's position, the largest timestamp before it.
"""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import Readable, iter_times
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.walk_ahead import WalkAhead
from tidelog.model import NO_TIMESTAMP
from tidelog.processors import processors
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.kernel import COMPILED, walk_times

if TYPE_CHECKING:
    from tidelog.formats.time_map import TimeMap

MAX_BYTES = 4 * 1024 * 1024 * 1024
MAX_BATCHES = 256 * 1024
MAPPED_BYTES = 16 * 1024 * 1024
TOO_LARGE = "the log is too large to check every batch's timestamp"

_CHUNK = 512
"""Batches per kernel call."""
_PROCESSORS = processors()
_SLOW_S = 20e-6
"""If reading a header takes longer than this on average (s), the headers were not in the page cache."""
_AHEAD_BYTES = 16 * 1024 * 1024
_SHARED_BYTES = 64 * 1024 * 1024
"""A walk over at least this many bytes is worth a second thread."""


class WalkBudget:
    """The part of a log that may still be walked to verify its time indexes. Once the budget is used up, a notice gives `why` as
    the reason. For walks of `map_bytes` or more, a time map is cheaper.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        max_batches: int | None = None,
        why: str = TOO_LARGE,
        map_bytes: int | None = None,
    ) -> None:
        self.why = why
        self.map_bytes = MAPPED_BYTES if map_bytes is None else map_bytes
        self.bytes = MAX_BYTES if max_bytes is None else max_bytes
        self.batches = MAX_BATCHES if max_batches is None else max_batches
        self._root = self
        self._is_noted = False

    def share(self, max_bytes: int) -> WalkBudget:
        """Return a budget for a part of the log. If the part's budget or the log's budget is used up, one notice is logged for
        the whole log.
        """
        part = WalkBudget(max_bytes, self.batches, self.why, self.map_bytes)
        part._root = self._root
        return part

    def suffices(self, size_bytes: int) -> bool:
        """Return whether the budget allows a walk through this many bytes. The walk may still reach the limit of batches."""
        return size_bytes <= self.bytes and self.batches > 0

    def note_end(self, path: FilePath, notices: Notices) -> None:
        """Log a notice, once per log, that an answer relies on unverified time index entries."""
        if not self._root._is_noted:
            self._root._is_noted = True
            text = (
                f"{self.why}: from here on time index entries that agree with their batches and with each other are trusted; "
                "`tidelog index verify` checks them, and time maps prove them (`tidelog index rebuild --time-map`)"
            )
            notices.note(path, text)


class ProvenHead:
    """The batches of one segment that have been walked so far, from the segment's start."""

    def __init__(
        self,
        file: Readable,
        base_offset: int,
        budget: WalkBudget,
        claimed_after: Callable[[int], int | None] = lambda position: None,
    ) -> None:
        """`claimed_after` returns a position at or after the given one at which a batch probably begins, None if unknown. The
        position may be wrong.
        """
        self.budget = budget
        self._claimed_after = claimed_after
        self._file = file
        self._next_offset = base_offset
        self._positions = array("q", [0])
        """The batches' positions; the last one is where the walk continues."""
        self._largest = array("q", [NO_TIMESTAMP])
        """The largest timestamp before each position."""
        self._is_slow = False
        self.time_map: TimeMap | None = None
        self.is_map_known = False
        """Whether `time_map`, an alternative to the walk, was looked for."""

    @property
    def walked_bytes(self) -> int:
        """The end of the walk."""
        return self._positions[-1]

    def largest_before(self, position: int) -> int | None:
        """Return the largest timestamp (ms; -1 for none) before the batch at `position`; None if the budget does not suffice for
        the walk.

        Raises CorruptBatchError if no batch begins there or an earlier header is invalid; SegmentChangedError.
        """
        positions = self._positions
        if position > positions[-1] and not self._walk(position):
            return None
        slot = bisect_left(positions, position)
        if positions[slot] != position:
            raise CorruptBatchError("no batch begins here", path=self._file.path, position=position)
        return self._largest[slot]

    def first_reaching(self, timestamp: int) -> int | None:
        """Return the position of the first walked batch with a timestamp (ms) at or after `timestamp`, None if there is none."""
        slot = bisect_left(self._largest, timestamp, 1)
        return self._positions[slot - 1] if slot < len(self._largest) else None

    def _walk(self, position: int) -> bool:
        """Walk up to `position`; return False if the budget does not suffice."""
        budget, positions = self.budget, self._positions
        if position - positions[-1] > budget.bytes:
            return False
        ahead: WalkAhead | None = None
        is_shared = False
        try:
            while positions[-1] < position:
                if ahead is not None and positions[-1] >= ahead.start:
                    self._take(ahead)
                    ahead = None
                    continue
                room = min(_CHUNK, budget.batches)
                if not room:
                    return False
                start, known = positions[-1], len(positions)
                follows = ahead is not None and self._follow(ahead.start, room) > 0
                if not follows and not self._follow(position, room):
                    self._step(position, room)
                budget.batches -= len(positions) - known
                budget.bytes -= positions[-1] - start
                if not is_shared and not self._is_slow:
                    is_shared = True
                    ahead = self._shared(position)
            return True
        finally:
            if ahead is not None:
                ahead.stop()

    def _shared(self, position: int) -> WalkAhead | None:
        """Start a second walk, on its own thread, up to `position` if that is far away and the first batches were in the page
        cache.
        """
        start = self._positions[-1]
        if position - start < _SHARED_BYTES or not COMPILED or _PROCESSORS < 2 or not self._has_descriptor():
            return None
        middle = self._claimed_after((start + position) // 2)
        if middle is None or not start < middle < position:
            return None
        assert isinstance(self._file, ReadOnlyFile)
        return WalkAhead(self._file.descriptor(), middle, position, self.budget.batches)

    def _take(self, ahead: WalkAhead) -> None:
        """Append the second walk's result, unless it exceeds the budget."""
        found = ahead.take(self._positions[-1], self._next_offset, self._largest[-1])
        if found is None or len(found[0]) > self.budget.batches:
            return
        assert isinstance(self._file, ReadOnlyFile)
        ends, largest, self._next_offset = found
        self._positions += ends
        self._largest += largest
        self.budget.batches -= len(ends)
        self.budget.bytes -= ends[-1] - ahead.start
        self._file.bytes_read += len(ends) * HEADER_BYTES

    def _has_descriptor(self) -> bool:
        return isinstance(self._file, ReadOnlyFile) and self._file.descriptor() >= 0

    def _follow(self, position: int, room: int) -> int:
        """Let the walk kernel read at most `room` headers before `position`. Return the number of batches walked."""
        if not COMPILED or not self._has_descriptor():
            return 0  # Without a descriptor, the kernel cannot read the file.
        assert isinstance(self._file, ReadOnlyFile)
        ends, times = array("q", bytes(8 * room)), array("q", bytes(8 * room))
        fd, start = self._file.descriptor(), self._positions[-1]
        if self._is_slow and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, start, min(_AHEAD_BYTES, position - start), os.POSIX_FADV_WILLNEED)
        began = time.perf_counter()
        count, self._next_offset = walk_times(fd, start, position, self._next_offset, self._largest[-1], ends, times)
        self._is_slow = time.perf_counter() - began > count * _SLOW_S
        self._file.bytes_read += count * HEADER_BYTES
        self._positions.extend(ends[:count])
        self._largest.extend(times[:count])
        return count

    def _step(self, position: int, room: int) -> None:
        """Walk up to `room` batches of any message format, one by one."""
        latest = self._largest[-1]
        for end, next_offset, timestamp in islice(iter_times(self._file, self._positions[-1], position, self._next_offset), room):
            latest = max(latest, timestamp)
            self._positions.append(end)
            self._largest.append(latest)
            self._next_offset = next_offset
