"""Counts a segment's records by time, from its time map if it has one. `endpoints.counts` describes the methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from tidelog.errors import SegmentChangedError
from tidelog.formats.time_map import TimeMap
from tidelog.model import MAX_OFFSET
from tidelog.reader.segment import Segment
from tidelog.records.batch import iter_headers
from tidelog.records.columns import Columns
from tidelog.web.grid import Grid
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.time_maps import KnownMaps, Mapped, first_time

MAX_ENTRIES = 500
"""The most entries of a segment's time index that are read."""

CHUNK_BYTES = 1 << 20

READ_BYTES = 24 << 20
"""The most bytes that are read for an exact count, unless a request asks for one with `exact=1`."""

_UNLIMITED = 2**62


def read_limit(query: Query) -> int:
    """Return how many bytes a request may read to be exact."""
    return _UNLIMITED if query.flag("exact") else READ_BYTES


class Counting:
    """Counts records into a grid. `finish` reads what the maps do not count, if it is at most `limit_bytes`."""

    def __init__(self, maps: KnownMaps, grid: Grid, job: Job, limit_bytes: int) -> None:
        self.read_bytes = 0
        self._maps = maps
        self._grid = grid
        self._job = job
        self._left = limit_bytes
        self._mapped: list[tuple[Segment, Mapped, list[int], list[int], int, int]] = []
        """Per segment: the blocks at an edge of the range, other blocks with records in several intervals, and the offset
        bounds.
        """
        self._unmapped: list[tuple[Segment, int, int, int]] = []

    def add(self, segment: Segment, start_offset: int, end_offset: int) -> None:
        """Count a segment's records in `[start_offset, end_offset)` from its map, and note the blocks that the map does
        not count.
        """
        found = self._maps.map_of(segment, self._job)
        position = 0
        if found is not None:
            edges, doubtful = self._by_map(found, start_offset, end_offset)
            if edges or doubtful:
                known = found.time_map
                self._left -= sum(known.end_position(one) - known.positions[one] for one in (*edges, *doubtful))
                self._mapped.append((segment, found, edges, doubtful, start_offset, end_offset))
            position = found.time_map.covered_bytes
        end = segment.end_position
        if position < end and segment.base_offset < end_offset:
            self._left -= end - position
            self._unmapped.append((segment, position, start_offset, end_offset))

    def _by_map(self, found: Mapped, start_offset: int, end_offset: int) -> tuple[list[int], list[int]]:
        grid, known = self._grid, found.time_map
        start, end, step = grid.start_ms, grid.end_ms, grid.step_ms
        edges: list[int] = []
        doubtful: list[int] = []
        for block in known.blocks_in_time(known.blocks_between(start_offset, end_offset), start, end):
            first, last = known.min_timestamps[block], known.max_timestamps[block]
            is_whole = known.first_offsets[block] >= start_offset and known.end_offset(block) <= end_offset
            if is_whole and first >= start and last < end and (first - start) // step == (last - start) // step:
                grid.add((first - start) // step, known.records[block] - known.without_timestamp[block])
            elif is_whole:
                doubtful.append(block)
            else:
                edges.append(block)
        return edges, doubtful

    def finish(self) -> None:
        """Count the rest: read it if it is small, otherwise estimate it from the maps and time indexes."""
        is_read = self._left >= 0
        for segment, found, edges, blocks, start_offset, end_offset in self._mapped:
            read = sorted((*edges, *blocks)) if is_read else edges
            self._read(segment, _runs(found.time_map, read), start_offset, end_offset)
            if not is_read and blocks:
                self._grid.why.add("some blocks of the time maps span several intervals: their counts are estimated")
                self._estimate(found, blocks)
            segment.close()
        for segment, position, start_offset, end_offset in self._unmapped:
            if is_read:
                self._read(segment, [(position, segment.end_position)], start_offset, end_offset)
            else:
                self._grid.why.add("segments without a time map are counted by their time index: late records count as on time")
                _count_indexed(segment, position, start_offset, self._grid)
            segment.close()

    def _estimate(self, found: Mapped, blocks: list[int]) -> None:
        """Count one record at the start of each span, and spread the block's other records evenly over its main span."""
        grid, known = self._grid, found.time_map
        grid.add_times(found.starts(_ranges(blocks)))
        start, end, step = grid.start_ms, grid.end_ms, grid.step_ms
        for block in blocks:
            count = known.records[block] - known.without_timestamp[block] - found.spans(block)
            low, high = found.lows[block], found.highs[block]
            if start <= low and high < end and (low - start) // step == (high - start) // step:
                grid.add((low - start) // step, count)
            else:
                grid.spread(low, high, count)

    def _read(self, segment: Segment, runs: Iterable[tuple[int, int]], start_offset: int, end_offset: int) -> None:
        for start, end in runs:
            self.read_bytes += end - start
            _read(segment, start, end, start_offset, end_offset, self._grid, self._job)
            if self._job.is_late():
                self._grid.why.add("the time limit was reached before everything was read")
                return


def _ranges(blocks: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of adjacent blocks, ends exclusive."""
    for _, run in groupby(enumerate(blocks), key=lambda pair: pair[1] - pair[0]):
        numbers = [block for _, block in run]
        yield numbers[0], numbers[-1] + 1


def _runs(known: TimeMap, blocks: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in blocks:
        begin, finish = known.positions[block], known.end_position(block)
        if runs and runs[-1][1] == begin and finish - runs[-1][0] <= CHUNK_BYTES:
            runs[-1] = (runs[-1][0], finish)
        else:
            runs.append((begin, finish))
    return runs


def _read(segment: Segment, position: int, end: int, start_offset: int, end_offset: int, grid: Grid, job: Job) -> None:
    """Count the records of whole batches by their timestamps. Raises the same errors as reading."""
    import pyarrow as pa

    columns = Columns(grid.start_ms, grid.end_ms, start_offset, min(end_offset, MAX_OFFSET), names=["timestamp"])
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
                raise SegmentChangedError("a segment was truncated while it was being read", path=segment.log_path)
            job.take_turn(large.size)
            columns.add(large, segment.read_batch(large), 0, segment.log_path)
            used = large.size
        position += used
        if columns.rows:
            times = pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(columns.timestamps().data)], 0)
            grid.add_times(times)
            columns.clear()


def _count_indexed(segment: Segment, position: int, start_offset: int, grid: Grid) -> None:
    """Count from the time index: spread the offsets between two entries over the time between them."""
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
