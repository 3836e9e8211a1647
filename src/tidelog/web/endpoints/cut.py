"""`/api/cut`: how many records of a time range a consumer reads between two offsets, and how many it misses.

A consumer that wants the range [start, end) looks up the offsets of both times (offsetsForTimes) and reads between them. It
misses records of the range that were appended after the first record at or after the end, and it reads records outside the range.

| field | the number of records |
|---|---|
| exact | in the range, by their timestamps: those that `tidelog.scan` reads |
| cut | between the two offsets |
| lost | in the range, but not between the offsets |
| superfluous | not in the range, but between the offsets |

In a folder, time maps give most of the counts. The rest is read if it is small or if `exact=1` is given. Otherwise it is
estimated, and `exact_counts` is false.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidelog.errors import UnsupportedForMessageFormatError
from tidelog.model import MAX_OFFSET, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.time_search import find_offset
from tidelog.sources.bounds import TimeRange
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, plain
from tidelog.web.grid import Grid
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.segment_counts import Counting, read_limit
from tidelog.web.wanted import Wanted, pieces

ALL_TIMES_MS = 2**62


class Cut(NamedTuple):
    """The counts of one partition, and the offsets of the cut."""

    start_offset: int
    end_offset: int
    exact: int
    cut: int
    inside: int
    """The number of records that are both in the range and between the offsets."""
    is_exact: bool = True


def cut(context: Context, query: Query, job: Job) -> Answer:
    """Return the counts of each partition, and their sums."""
    wanted = Wanted.of(context, query)
    start, end = wanted.request.time.start_ms or 0, wanted.request.time.end_ms
    span = TimeRange(start, ALL_TIMES_MS if end is None else end)
    limit_bytes = read_limit(query)
    is_whole = is_exact = True
    answer = []
    with context.sources.named(query.text("source")).borrowed() as source:
        for number in wanted.partitions(source):
            key = TopicPartition(wanted.request.topic, number)
            found = (
                _by_maps(context, source, key, span, job, limit_bytes)
                if source.log_dir
                else _by_reading(source, wanted, key, span, job)
            )
            if found is None:
                is_whole = False
                break
            is_exact = is_exact and found.is_exact
            answer.append(_shown(number, found))
    names = ("exact", "cut", "lost", "superfluous")
    totals = {name: sum(int(one[name]) for one in answer) for name in names}
    return {
        "partitions": answer,
        "total": {name: plain(value) for name, value in totals.items()},
        "done": is_whole,
        "exact_counts": is_exact,
    }


def _shown(number: int, found: Cut) -> Answer:
    return {
        "partition": number,
        "start_offset": plain(found.start_offset),
        "end_offset": plain(found.end_offset),
        "exact": plain(found.exact),
        "cut": plain(found.cut),
        "lost": plain(found.exact - found.inside),
        "superfluous": plain(found.cut - found.inside),
    }


def _by_maps(context: Context, source: Source, key: TopicPartition, span: TimeRange, job: Job, limit_bytes: int) -> Cut | None:
    assert source.log_dir is not None and span.start_ms is not None and span.end_ms is not None
    with source.log_dir.log(*key) as log:
        first, until = _offset(log, span.start_ms), _offset(log, span.end_ms)
        until = max(first, until)
        everything = TimeRange(0, ALL_TIMES_MS)
        found = []
        # No record below the first offset is in the range, because `find_offset` found the first one that is.
        for bounds in ((span, until, MAX_OFFSET), (everything, first, until), (span, first, until)):
            one = _count(context, log, *bounds, limit_bytes, job)
            if one is None:
                return None
            found.append(one)
    (lost, _), (within, _), (inside, _) = found
    inside = min(inside, within)
    return Cut(first, until, inside + lost, within, inside, all(is_exact for _, is_exact in found))


def _offset(log: Log, time_ms: int) -> int:
    try:
        found = find_offset(log, time_ms)
    except UnsupportedForMessageFormatError:
        return log.log_end_offset
    return log.log_end_offset if found is None else found.offset


def _count(
    context: Context, log: Log, span: TimeRange, start_offset: int, end_offset: int, limit_bytes: int, job: Job
) -> tuple[int, bool] | None:
    """Return the number of records within the times and offsets, and whether that number is exact. None if the job's time
    ends first.
    """
    assert span.start_ms is not None and span.end_ms is not None
    grid = Grid(span.start_ms, span.end_ms, max(1, span.end_ms - span.start_ms), 1)
    counting = Counting(context.maps, grid, job, limit_bytes)
    first, end = max(start_offset, log.log_start_offset), min(end_offset, log.log_end_offset)
    for segment in log.segments_from(first):
        if first < end and span.start_ms < span.end_ms:
            counting.add(segment, first, end)
        segment.close()
        if job.is_late():
            return None
    counting.finish()
    return grid.whole()[0], not grid.why


def _by_reading(source: Source, wanted: Wanted, key: TopicPartition, span: TimeRange, job: Job) -> Cut | None:
    """Count by reading from the range's first record to the end of the log, because a broker offers no other way."""
    import pyarrow.compute as pc

    assert span.start_ms is not None and span.end_ms is not None
    ends = source.ends([key])[key]
    answers = [source.find({key: one})[key] for one in (span.start_ms, min(span.end_ms, 2**53))]
    first, until = (ends.end_offset if one is None else one.offset for one in answers)
    until = max(first, until)
    exact = inside = within = 0
    for request in (
        replace(wanted.request_for(key.partition, None), time=span),
        replace(wanted.request, partitions=(key.partition,), offsets={key.partition: (first, until)}, time=TimeRange(0, None)),
    ):
        for split in pieces(source, request, ScanReport(), job):
            for batch in split.read(("offset",), reading=source.reading):
                if request.time is span:
                    exact += batch.num_rows
                    offsets = batch.column("offset")
                    inside += pc.sum(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, until))).as_py() or 0
                else:
                    within += batch.num_rows
                if job.is_late():
                    return None
    return Cut(first, until, exact, within, inside)
