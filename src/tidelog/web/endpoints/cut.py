"""`/api/cut`: what a read from offset to offset gets of a time range, and what it misses.

A consumer that wants [start, end) asks for the offsets of both times (offsetsForTimes) and reads what is in between. It misses
records of the range that were appended after the first record at or after the end, and gets others that are not in the range.

| in the answer | is the number of records |
|---|---|
| exact | of the range, by their timestamps: what `tidelog.scan` reads |
| cut | between the two offsets |
| lost | of the range, but not between the offsets |
| superfluous | between the offsets, but not of the range |

In a folder, time maps give most of it; records are read only in blocks at the edges.
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
from tidelog.web.segment_counts import Counting
from tidelog.web.wanted import Wanted, pieces

ALL_TIMES_MS = 2**62


class Cut(NamedTuple):
    """The counts of one partition, and the offsets of the cut."""

    start_offset: int
    end_offset: int
    exact: int
    cut: int
    inside: int
    """The records that are in both."""


def cut(context: Context, query: Query, job: Job) -> Answer:
    """Return the counts of each partition, and their sums."""
    wanted = Wanted.of(context, query)
    start, end = wanted.request.time.start_ms or 0, wanted.request.time.end_ms
    span = TimeRange(start, ALL_TIMES_MS if end is None else end)
    is_whole = True
    answer = []
    with context.sources.named(query.text("source")).borrowed() as source:
        for number in wanted.partitions(source):
            key = TopicPartition(wanted.request.topic, number)
            found = _by_maps(context, source, key, span, job) if source.log_dir else _by_reading(source, wanted, key, span, job)
            if found is None:
                is_whole = False
                break
            answer.append(_shown(number, found))
    names = ("exact", "cut", "lost", "superfluous")
    totals = {name: sum(int(one[name]) for one in answer) for name in names}
    return {"partitions": answer, "total": {name: plain(value) for name, value in totals.items()}, "done": is_whole}


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


def _by_maps(context: Context, source: Source, key: TopicPartition, span: TimeRange, job: Job) -> Cut | None:
    assert source.log_dir is not None and span.start_ms is not None and span.end_ms is not None
    with source.log_dir.log(*key) as log:
        first, until = _offset(log, span.start_ms), _offset(log, span.end_ms)
        until = max(first, until)
        everything = TimeRange(0, ALL_TIMES_MS)
        exact = _count(context, log, span, 0, MAX_OFFSET, job)
        within = _count(context, log, everything, first, until, job)
        inside = _count(context, log, span, first, until, job)
    if exact is None or within is None or inside is None:
        return None
    return Cut(first, until, exact, within, inside)


def _offset(log: Log, time_ms: int) -> int:
    try:
        found = find_offset(log, time_ms)
    except UnsupportedForMessageFormatError:
        return log.log_end_offset
    return log.log_end_offset if found is None else found.offset


def _count(context: Context, log: Log, span: TimeRange, start_offset: int, end_offset: int, job: Job) -> int | None:
    """Count the records within both bounds exactly; None if the job's time is over before."""
    assert span.start_ms is not None and span.end_ms is not None
    grid = Grid(span.start_ms, span.end_ms, max(1, span.end_ms - span.start_ms), 1)
    counting = Counting(context.maps, grid, job, 2**62)
    first, end = max(start_offset, log.log_start_offset), min(end_offset, log.log_end_offset)
    for segment in log.segments_from(first):
        if first < end and span.start_ms < span.end_ms:
            counting.add(segment, first, end)
        segment.close()
        if job.is_late():
            return None
    counting.finish()
    return None if grid.why else grid.whole()[0]


def _by_reading(source: Source, wanted: Wanted, key: TopicPartition, span: TimeRange, job: Job) -> Cut | None:
    """Count by reading everything from the range's first record to the end, as a broker offers nothing else."""
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
        for split in pieces(source, request, ScanReport()):
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
