"""Many searches by time in one partition at once: `reader.time_search.find_offset` for each of a million times, in one pass.

The answer to a time is the first record, by offset, that reaches it. So the answers to times in ascending order never go back,
and one walk through the log finds them all:

| step | shared by all times |
|---|---|
| which segment | from segment to segment, on with the first one whose largest timestamp reaches the smallest time still open |
| where in it | its time index says where to begin (`reader.segment_time` checks the entry, as for a single search) |
| the batches | walked once; one is decoded only if its largest timestamp reaches a time still open |
| the records | many batches together: the running maximum of their timestamps, in which all open times are bisected |
| a gap | where the index says that the next open time is `JUMP_BYTES` or more away, the walk starts over there |

A batch's largest timestamp and its records need not agree in a log from another writer, and the log start may hide the
record that a batch's largest timestamp stands for. Then a time that seemed answered is still open: the stretch is walked once
more, batch by batch, so that the answers are those of single searches in any case.

`tidelog.spark.jobs.lookups` calls this for a part of a partition's times in each of its tasks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, SegmentChangedError, UnsupportedForMessageFormatError
from tidelog.extras import imported_from
from tidelog.reader import segment_time
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.reader.warned_search import warn_of
from tidelog.records.columns import Columns

with imported_from("spark", "numpy"):
    import numpy as np
    import numpy.typing as npt

NONE = -1
"""Stands for "no record is at or after that time" in both columns of the answers."""

JUMP_BYTES = 256 * 1024
"""So much log is walked in about the time that it takes to look up and check where else to begin."""

GROUP_ROWS = 32 * 1024
"""Records that are bisected together."""

Int64s = npt.NDArray[np.int64]


class FoundOffsets(NamedTuple):
    """Answers in the order of the questions: offsets and the records' timestamps (ms), both -1 where no record is at or after
    that time.
    """

    offsets: Int64s
    timestamps: Int64s


def find_offsets(log: Log, timestamps: Int64s) -> FoundOffsets:
    """Return what `tidelog.find_offset` returns for each of `timestamps` (epoch ms, in any order, repeated or not).

    As there, an `IncompleteLogWarning` names each range of offsets that should be in the folder, is not, and could change an
    answer. Raises as `search_offsets`.
    """
    found = search_offsets(log, timestamps)
    if found.offsets.size:
        last = None if (found.offsets == NONE).any() else int(found.offsets.max())
        warn_of(lambda: log.missing(0, last))
    return found


def search_offsets(log: Log, timestamps: Int64s) -> FoundOffsets:
    """Return the answers of `find_offsets`, silently about what the folder lacks: callers have their own way to report it.

    Raises InvalidArgumentError for a negative one, UnsupportedForMessageFormatError in a v0 topic, and what reading the log
    raises (CorruptDataError, SegmentChangedError).
    """
    times, places = np.unique(np.asarray(timestamps, np.int64), return_inverse=True)
    if times.size and times[0] < 0:
        raise InvalidArgumentError("a time to look up is before 1970", found=int(times[0]), expected="epoch milliseconds")
    if times.size and log.message_format == 0:
        raise UnsupportedForMessageFormatError(
            "message format v0 has no timestamps: no time can be looked up", path=log.directory
        )
    log.check_names()
    search = _Search(times, log.log_start_offset)
    for segment in log.segments:
        if search.is_done:
            break
        if segment.next_base_offset is None or segment.next_base_offset > log.log_start_offset:
            search.go_through(segment)
            segment.close()
    return FoundOffsets(search.offsets[places], search.timestamps[places])


class _Search:
    """The times, ascending and each once, of which the first `answered` have their answers."""

    def __init__(self, times: Int64s, log_start_offset: int) -> None:
        self.times = times
        self.offsets = np.full(times.size, NONE, np.int64)
        self.timestamps = np.full(times.size, NONE, np.int64)
        self.answered = 0
        self.ordered = array("q", times.tobytes())  # bisect is ten times slower on numpy's numbers
        self.start_offset = log_start_offset

    @property
    def is_done(self) -> bool:
        return self.answered == self.times.size

    def go_through(self, segment: Segment) -> None:
        """Answer what the segment answers: every time that a record of it reaches first."""
        walked_to, careful_to = 0, 0
        while not self.is_done:
            time = self.ordered[self.answered]
            largest = segment_time.largest_timestamp(segment, at_least=time)
            if largest.source == "none" or largest.timestamp < time:
                return
            position = segment_time.start_position(segment, time)
            if self.start_offset > segment.base_offset:
                position = max(position, segment.floor_position(self.start_offset))
            # Nothing up to there reaches a time that is still open, whatever the index says.
            position = max(position, walked_to)
            walk = _Walk(self, segment, position, careful_to)
            walk.run()
            if walk.failed_at is not None:
                # What was walked before that stretch counts.
                walked_to, careful_to = walk.failed_at, walk.walked_to
            elif walk.is_at_end:
                return
            else:
                walked_to = walk.walked_to


class _Walk:
    """One walk through a segment, from `position` to its end, to a gap, or until every time has its answer."""

    def __init__(self, search: _Search, segment: Segment, position: int, careful_to: int) -> None:
        self.walked_to = position
        self.is_at_end = False
        self.failed_at: int | None = None
        """Where the stretch begins that answered less than the largest timestamps of its batches let expect."""
        self._search = search
        self._segment = segment
        self._careful_to = careful_to
        self._group_position = position
        self._columns = Columns(names=(), include_control=True, check_crc=False)
        self._counts: list[int] = []
        self._largest: list[int] = []
        self._peek_at = position

    def run(self) -> None:
        search, segment, columns = self._search, self._segment, self._columns
        times, start_offset, path = search.ordered, search.start_offset, segment.log_path
        # The times before it are answered if each batch of the group has the record that its largest timestamp stands for.
        promised = search.answered
        count = len(times)
        for header in segment.headers(self.walked_to, check_crc=True):
            if header.max_timestamp >= times[promised] and header.last_offset >= start_offset:
                columns.set_bounds(times[promised], None, start_offset, None)
                rows = columns.add(header, segment.read_batch(header), 0, path)
                self._counts.append(rows)
                self._largest.append(header.max_timestamp)
                promised = bisect_right(times, header.max_timestamp, promised)
            self.walked_to = header.end_position
            is_careful = self.walked_to <= self._careful_to
            is_far = promised < count and self._is_far(promised)
            if promised == count or is_far or columns.rows >= GROUP_ROWS or (is_careful and self._counts):
                self._answer(promised)
                if self.failed_at is not None and not is_careful:
                    return
                self.failed_at = None
                promised = search.answered
                if promised == count or (is_far and not is_careful):
                    return
        self._answer(promised)
        self.is_at_end = self.failed_at is None

    def _answer(self, promised: int) -> None:
        """Answer the open times before `promised` from the records that were collected; forget these."""
        search, columns = self._search, self._columns
        if promised > search.answered:
            offsets = np.frombuffer(columns.offsets(), np.int64)
            timestamps = np.frombuffer(columns.timestamps().data, np.int64)
            # A single search opens no batch whose largest timestamp is too small: no record counts for more than that.
            counted = np.minimum(timestamps, np.repeat(np.array(self._largest, np.int64), self._counts))
            reached = np.maximum.accumulate(counted)
            rows = np.searchsorted(reached, search.times[search.answered : promised])
            rows = rows[rows < reached.size]
            answered = slice(search.answered, search.answered + rows.size)
            search.offsets[answered] = offsets[rows]
            search.timestamps[answered] = timestamps[rows]
            search.answered += rows.size
            if search.answered < promised:
                self.failed_at = self._group_position
        columns.clear()
        self._counts.clear()
        self._largest.clear()
        self._group_position = self.walked_to

    def _is_far(self, promised: int) -> bool:
        """Whether the indexes, unchecked, lead far beyond the walk for the next open time; asked after each so many bytes."""
        if self.walked_to < self._peek_at or promised == self._search.answered:
            return False
        self._peek_at = self.walked_to + JUMP_BYTES
        times, offsets = self._segment.time_index, self._segment.offset_index
        if times is None or offsets is None:
            return False
        try:
            slot = times.slot(self._search.ordered[promised])
            slot = -1 if slot < 0 else offsets.slot(times.entry(slot).offset)
            return slot >= 0 and offsets.entry(slot).position >= self.walked_to + JUMP_BYTES
        except SegmentChangedError:
            return False
