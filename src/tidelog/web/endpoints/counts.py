"""`/api/counts`: the number of records in each interval of a time range.

| part of the log | how it is counted | exact |
|---|---|---|
| blocks of a time map that lie within one interval | from the map | yes |
| other blocks, and segments without a map, up to `READ_BYTES` in all | their timestamps are read | yes |
| blocks, if there is more to read | from their time spans in the map | no |
| segments, if there is more to read | from the time index: offsets between two entries count as records of that time | no |
| a small range of a broker | its records are read | yes |
| a large range of a broker | from the offsets that the broker finds for the ends of the intervals | no |
| any, with filters or read_committed | the range is read until the job's time is over | if all of the range was read |

`why` gives the reasons for inexact counts. If `in_time` is false, the job's time ended first, and the counts may be too low.
With `exact=1`, everything that an exact count needs is read, until the job's time is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.errors import InvalidArgumentError, TidelogError, UnsupportedForMessageFormatError
from tidelog.model import MAX_TIMESTAMP, READ_UNCOMMITTED, TopicPartition
from tidelog.reader.log import Log
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import filtered
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, plain
from tidelog.web.grid import Grid
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.segment_counts import Counting, read_limit
from tidelog.web.wanted import Wanted, pieces

MAX_BUCKETS = 2000

READ_OFFSETS = 100_000
"""The most records that are fetched from brokers for an exact count."""

MAX_ASKED = 60
"""The most intervals for which brokers are asked for offsets."""


def counts(context: Context, query: Query, job: Job) -> Answer:
    """Return the number of records in each interval of the range."""
    wanted = Wanted.of(context, query)
    buckets = query.number("buckets", 200, 1, MAX_BUCKETS)
    with context.sources.named(query.text("source")).borrowed() as source:
        start, end = wanted.request.time.start_ms, wanted.request.time.end_ms
        if start is None or end is None:
            least, most = _extent(context, source, wanted, job)
            start, end = least if start is None else start, max(most + 1, start or 0) if end is None else end
        grid = Grid.over(start, end, buckets)
        wanted = replace(wanted, request=replace(wanted.request, time=replace(wanted.request.time, start_ms=start, end_ms=end)))
        is_plain = not wanted.filters and wanted.request.isolation == READ_UNCOMMITTED and wanted.offset is wanted.end_offset
        if end <= start:
            read_bytes = 0
        elif is_plain and source.log_dir is not None:
            read_bytes = _by_maps(context, source, wanted, grid, job, read_limit(query))
        elif is_plain:
            read_bytes = _by_brokers(source, wanted, grid, job)
        else:
            read_bytes = _by_reading(source, wanted, grid, job)
    return {
        "start_ms": plain(grid.start_ms),
        "end_ms": plain(grid.end_ms),
        "step_ms": plain(grid.step_ms),
        "counts": grid.whole(),
        "exact": not grid.why,
        "read_bytes": plain(read_bytes),
        "why": sorted(grid.why),
        "in_time": not job.is_late(),
    }


def _extent(context: Context, source: Source, wanted: Wanted, job: Job) -> tuple[int, int]:
    """Return the smallest and the largest timestamp of the partitions."""
    numbers = wanted.partitions(source)
    least, most = [], []
    if source.log_dir is not None:
        for number in numbers:
            with source.log_dir.log(wanted.request.topic, number) as log:
                for segment in log.segments:
                    bounds = context.maps.bounds_of(segment, job)
                    segment.close()
                    if bounds.max_ms >= 0:
                        least.append(bounds.min_ms)
                        most.append(bounds.max_ms)
                    if job.is_late():
                        break
    else:
        keys = [TopicPartition(wanted.request.topic, number) for number in numbers]
        for target, found in ((0, least), (MAX_TIMESTAMP, most)):
            try:
                answers = source.find(dict.fromkeys(keys, target))
            except UnsupportedForMessageFormatError:
                continue
            except TidelogError as error:
                raise InvalidArgumentError(
                    f"the brokers do not report the topic's time range: {error}", expected="the parameters start and end"
                ) from None
            found += [one.timestamp for one in answers.values() if one is not None]
    return max(0, min(least, default=0)), max(most, default=-1)


def _by_maps(context: Context, source: Source, wanted: Wanted, grid: Grid, job: Job, limit_bytes: int) -> int:
    assert source.log_dir is not None
    counting = Counting(context.maps, grid, job, limit_bytes)
    numbers = wanted.partitions(source)
    for number in numbers:
        with source.log_dir.log(wanted.request.topic, number) as log:
            log.check_names()
            end_offset = _end_offset(log, wanted)
            for segment in log.segments_from(log.log_start_offset):
                counting.add(segment, log.log_start_offset, end_offset)
                segment.close()
        if job.is_late():
            grid.why.add("the time limit was reached before every partition was counted")
            break
    counting.finish()
    return counting.read_bytes


def _end_offset(log: Log, wanted: Wanted) -> int:
    if wanted.request.until == "high_watermark" and log.high_watermark is not None:
        return log.high_watermark
    return log.log_end_offset


def _by_reading(source: Source, wanted: Wanted, grid: Grid, job: Job) -> int:
    report = ScanReport()
    columns = None if wanted.filters else ("timestamp",)
    for number in wanted.partitions(source):
        for split in pieces(source, wanted.request_for(number, None), report, job):
            if job.is_late():
                grid.why.add(f"counted up to offset {split.first_offset} of partition {number}; later records are not counted")
                return report.bytes_read
            for batch in split.read(columns, views=True, report=report, reading=source.reading):
                for kept in filtered([batch], wanted.filters):
                    grid.add_times(kept.column("timestamp"))
                del batch  # The next records may be as large.
                job.check()
    return report.bytes_read


def _by_brokers(source: Source, wanted: Wanted, grid: Grid, job: Job) -> int:
    keys = [TopicPartition(wanted.request.topic, number) for number in wanted.partitions(source)]
    ends = source.ends(keys)
    first = _offsets_at(source, keys, grid.start_ms, ends)
    if sum(ends[key].end_offset - first[key] for key in keys if key in ends) <= READ_OFFSETS:
        return _by_reading(source, wanted, grid, job)
    grid.why.add(
        "brokers do not count records: counts are differences of the offsets at the intervals' ends, so late records "
        "count where they arrived"
    )
    share = max(1, -(-grid.buckets // MAX_ASKED))
    before = first
    for bucket in range(0, grid.buckets, share):
        until = min(grid.buckets, bucket + share)
        found = _offsets_at(source, keys, grid.start_ms + until * grid.step_ms, ends)
        count = sum(max(0, found[key] - before[key]) for key in keys if key in ends)
        grid.spread(grid.start_ms + bucket * grid.step_ms, grid.start_ms + until * grid.step_ms - 1, count)
        before = {key: max(before[key], found[key]) for key in before}
        if job.is_late():
            grid.why.add("the time limit was reached before every interval was counted")
            break
    return 0


def _offsets_at(
    source: Source, keys: list[TopicPartition], time_ms: int, ends: Mapping[TopicPartition, object]
) -> dict[TopicPartition, int]:
    found = source.find(dict.fromkeys(keys, time_ms))
    return {
        key: ends[key].end_offset if found[key] is None else found[key].offset  # type: ignore[union-attr, attr-defined]
        for key in keys
        if key in ends
    }
