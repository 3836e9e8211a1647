"""Answers many searches by time, up to millions, in one pass over a partition. Each answer is that of a single search
(`reader.time_search.find_offset`).

The answer for a time is the first record, by offset, with a timestamp at or after it. So the answers for ascending times never
decrease, and one walk through the log finds all of them. A time is open while it has no answer:

| step | shared by all times |
|---|---|
| find the segment | the next one whose largest timestamp is at or after the smallest open time |
| find the position | its time index says where to begin (`reader.segment_time` checks the entry, as for a single search) |
| walk the batches | once; a batch is decoded only if its largest timestamp is at or after an open time |
| match the records | for many batches together: all open times are bisected in the running maximum of timestamps |
| skip | if the index says that the next open time is at least `JUMP_BYTES` away, the walk restarts there |

In a log from another writer, the largest timestamp in a batch's header may differ from those of its records, and the record with
the largest timestamp may be below the log start. Then a time stays open although the header promised an answer. That part of the
log is walked again, batch by batch, so the answers always equal those of single searches.

Each task of `tidelog.spark.jobs.lookups` calls this for some of a partition's times.
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
"""The value in both columns of the answers if no record is at or after the time."""

JUMP_BYTES = 256 * 1024
"""Walking this much log takes about as long as looking up and checking another position."""

GROUP_ROWS = 32 * 1024
"""Records that are bisected together."""

Int64s = npt.NDArray[np.int64]


class FoundOffsets(NamedTuple):
    """The answers, in the order of the given times: offsets and the records' timestamps (ms). Both are -1 if no record is at or
    after the time.
    """

    offsets: Int64s
    timestamps: Int64s


def find_offsets(log: Log, timestamps: Int64s) -> FoundOffsets:
    """Return what `tidelog.find_offset` returns for each of `timestamps` (epoch ms, in any order, repeated or not).

    Issues an `IncompleteLogWarning` for each missing range of offsets that could change an answer, as `tidelog.find_offset` does.
    Raises the errors of `search_offsets`.
    """
    found = search_offsets(log, timestamps)
    if found.offsets.size:
        last = None if (found.offsets == NONE).any() else int(found.offsets.max())
        warn_of(lambda: log.missing(0, last))
    return found


def search_offsets(log: Log, timestamps: Int64s) -> FoundOffsets:
    """Return the answers of `find_offsets` without its warnings about missing records. Callers report these themselves.

    Raises InvalidArgumentError for a negative time, UnsupportedForMessageFormatError in a v0 topic, and what reading the log
    raises (CorruptDataError, SegmentChangedError).
    """
    times, places = np.unique(np.asarray(timestamps, np.int64), return_inverse=True)
    if times.size and times[0] < 0:
        raise InvalidArgumentError("a time to look up is before 1970", found=int(times[0]), expected="epoch milliseconds")
    if times.size and log.message_format == 0:
        raise UnsupportedForMessageFormatError(
            "message format v0 has no timestamps, so records cannot be found by time", path=log.directory
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
    """The state of a search. The times are ascending, without duplicates; the first `answered` times have answers."""

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
        """Answer every open time for which the segment has a record at or after it."""
        walked_to, careful_to = 0, 0
        while not self.is_done:
            time = self.ordered[self.answered]
            largest = segment_time.largest_timestamp(segment, at_least=time)
            if largest.source == "none" or largest.timestamp < time:
                return
            position = segment_time.start_position(segment, time)
            if self.start_offset > segment.base_offset:
                position = max(position, segment.floor_position(self.start_offset))
            # No record before `walked_to` is at or after an open time, so do not start earlier, even if the index says so.
            position = max(position, walked_to)
            walk = _Walk(self, segment, position, careful_to)
            walk.run()
            if walk.failed_at is not None:
                # The walk up to `failed_at` is valid; continue from there.
                walked_to, careful_to = walk.failed_at, walk.walked_to
            elif walk.is_at_end:
                return
            else:
                walked_to = walk.walked_to


class _Walk:
    """A walk through a segment from `position`. It stops at the segment's end, before a part that can be skipped, or as soon as
    every time has its answer.
    """

    def __init__(self, search: _Search, segment: Segment, position: int, careful_to: int) -> None:
        self.walked_to = position
        self.is_at_end = False
        self.failed_at: int | None = None
        """The position of the first batches that answered fewer times than their largest timestamps promised; None if no batches
        did.
        """
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
        # Earlier times are answered if each batch of the group has a record with its largest timestamp.
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
        """Answer the open times before index `promised` from the collected records, then drop the records."""
        search, columns = self._search, self._columns
        if promised > search.answered:
            offsets = np.frombuffer(columns.offsets(), np.int64)
            timestamps = np.frombuffer(columns.timestamps().data, np.int64)
            # A single search skips batches whose largest timestamp is too small.
            # So limit each record's timestamp to the largest in its batch's header.
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
        """Whether the indexes place the next open time far ahead of the walk. The entries are not checked against the log here.
        The indexes are consulted only once per `JUMP_BYTES` of the walk.
        """
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
