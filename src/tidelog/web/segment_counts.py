"""Counts a segment's records by time, from its time map where it has one; `endpoints.counts` has the table."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidelog.errors import SegmentChangedError
from tidelog.formats.time_map import TimeMap
from tidelog.model import MAX_OFFSET
from tidelog.reader.segment import Segment
from tidelog.records.batch import iter_headers
from tidelog.records.columns import Columns
from tidelog.web.grid import Grid
from tidelog.web.jobs import Job
from tidelog.web.time_maps import KnownMaps, first_time

MAX_ENTRIES = 500
"""The most entries of a segment's time index that are read."""

CHUNK_BYTES = 1 << 20


class ReadBudget:
    """How many bytes, and for how long, may still be read for an exact answer."""

    def __init__(self, limit_bytes: int, limit_s: float) -> None:
        self.left = limit_bytes
        self.read_bytes = 0
        self._end = time.monotonic() + limit_s

    def take(self, size_bytes: int) -> bool:
        """Return whether these bytes may be read."""
        if size_bytes > self.left or time.monotonic() > self._end:
            return False
        self.left -= size_bytes
        self.read_bytes += size_bytes
        return True


def count_segment(
    maps: KnownMaps, segment: Segment, start_offset: int, end_offset: int, grid: Grid, budget: ReadBudget, job: Job
) -> None:
    """Count the records of a segment with offsets in `[start_offset, end_offset)`."""
    found = maps.map_of(segment, job)
    position = 0
    if found is not None:
        _count_mapped(segment, found, start_offset, end_offset, grid, budget)
        position = found.covered_bytes
    end = segment.end_position
    if position >= end or segment.base_offset >= end_offset:
        return
    if budget.take(end - position):
        _read(segment, [(position, end)], start_offset, end_offset, grid)
    else:
        grid.why.add("segments without a time map were counted by their time index, where late records count as on time")
        _count_indexed(segment, position, start_offset, grid)


def _count_mapped(segment: Segment, known: TimeMap, start_offset: int, end_offset: int, grid: Grid, budget: ReadBudget) -> None:
    start, end, step = grid.start_ms, grid.end_ms, grid.step_ms
    doubtful = []
    for block in known.blocks_in_time(known.blocks_between(start_offset, end_offset), start, end):
        first, last = known.min_timestamps[block], known.max_timestamps[block]
        is_whole = known.first_offsets[block] >= start_offset and known.end_offset(block) <= end_offset
        if first >= start and last < end and (first - start) // step == (last - start) // step and is_whole:
            grid.add((first - start) // step, known.records[block] - known.without_timestamp[block])
        else:
            doubtful.append(block)
    unread = []
    runs: list[tuple[int, int]] = []
    for block in doubtful:
        begin, finish = known.positions[block], known.end_position(block)
        if not budget.take(finish - begin):
            unread.append(block)
        elif runs and runs[-1][1] == begin and finish - runs[-1][0] <= CHUNK_BYTES:
            runs[-1] = (runs[-1][0], finish)
        else:
            runs.append((begin, finish))
    _read(segment, runs, start_offset, end_offset, grid)
    if unread:
        grid.why.add("many blocks of the time maps have records of several intervals: theirs are spread evenly")
    for block in unread:
        count = known.records[block] - known.without_timestamp[block]
        grid.spread(known.min_timestamps[block], known.max_timestamps[block], count)


def _read(segment: Segment, runs: Iterable[tuple[int, int]], start_offset: int, end_offset: int, grid: Grid) -> None:
    """Count the records of whole batches by their timestamps. Raises what reading raises."""
    import pyarrow as pa

    columns = Columns(grid.start_ms, grid.end_ms, start_offset, min(end_offset, MAX_OFFSET), names=["timestamp"])
    for start, end in runs:
        position = start
        while position < end:
            data = memoryview(segment.file.read(position, min(CHUNK_BYTES, end - position)))
            used = 0
            for header in iter_headers(data, position, segment.log_path):
                if header.end_position - position > len(data):
                    break
                columns.add(header, data, used, segment.log_path)
                used = header.end_position - position
            if not used:
                large = next(segment.headers(position), None)
                if large is None:
                    raise SegmentChangedError("a segment became shorter while it was read", path=segment.log_path)
                columns.add(large, segment.read_batch(large), 0, segment.log_path)
                used = large.size
            position += used
            if columns.rows:
                rows = columns.rows
                times = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.timestamps().data)], 0)
                grid.add_times(times)
                columns.clear()


def _count_indexed(segment: Segment, position: int, start_offset: int, grid: Grid) -> None:
    """Count by the time index: offsets between two entries as records of the time between them."""
    index = segment.time_index
    header = next(segment.headers(position), None)
    if header is None:
        return
    offset, time_ms = header.base_offset, first_time(header)
    places = []
    if index is not None and index.entries:
        share = max(1, index.entries // MAX_ENTRIES)
        places = [(one.offset, one.timestamp) for one in map(index.entry, range(0, index.entries, share))]
    last = segment.valid_end().last_header
    if last is not None:
        places.append((last.last_offset, last.max_timestamp))
    for until, at_ms in places:
        if until < offset or until < start_offset:
            continue
        first = max(offset, start_offset)
        low, high = min(time_ms, at_ms), max(time_ms, at_ms)
        if low >= 0:
            grid.spread(low, high, until + 1 - first)
        offset, time_ms = until + 1, at_ms
