"""Pages of records sorted by time across partitions.

A page has the records after a cursor, sorted by timestamp, partition and offset. To make a page, a window of time is read
exactly, as by `tidelog.scan`, and the first records are kept. Time maps determine the width of the window: it contains the main
spans of blocks with enough records. So only a few blocks are read for a page, wherever in the log it is. Without maps the
window is the rest of the range, because a late record may be anywhere.

Records without a timestamp are left out, and the response has their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.model import READ_COMMITTED
from tidelog.reader.log_dir import LogDir
from tidelog.sources.bounds import TimeRange
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import filtered
from tidelog.sources.source import Source
from tidelog.web.arrow_numbers import int64
from tidelog.web.context import Answer, Context
from tidelog.web.jobs import Job
from tidelog.web.page_of_records import Page
from tidelog.web.wanted import Wanted, pieces

if TYPE_CHECKING:
    import pyarrow as pa

MOST_S = 30.0
"""Seconds that one window may take. Its records cannot be shown until all of it has been read."""

GROWTH = 8
"""The factor by which the next window is wider if too few records of a window pass the filters."""

ORDER = [("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


class TimeCursor(NamedTuple):
    """The position after a record that was shown. `(time, -1, -1)` is the position before all records of that time."""

    time_ms: int
    partition: int = -1
    offset: int = -1

    @classmethod
    def parse(cls, text: str) -> TimeCursor:
        """Parse a cursor. Raises InvalidArgumentError."""
        parts = text.split(".")
        if len(text) > 64 or len(parts) != 3 or not all(one.removeprefix("-").isdecimal() and one.isascii() for one in parts):
            raise InvalidArgumentError("after", found=repr(text), expected="the `next` of the previous page")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return ".".join(map(str, self))


def in_time_order(
    context: Context, source: Source, wanted: Wanted, page: Page, after: str | None, report: ScanReport, job: Job
) -> str | None:
    """Fill the page. Return the cursor of the next page, None at the end."""
    given = wanted.request.time
    cursor = TimeCursor(given.start_ms or 0) if after is None else TimeCursor.parse(after)
    width = 0
    started = time.monotonic()
    while given.end_ms is None or cursor.time_ms < given.end_ms:
        end = _window_end(context, source, wanted, cursor.time_ms, page.room, job)
        if end is not None and width:
            end = max(end, cursor.time_ms + width)
        if given.end_ms is not None:
            end = given.end_ms if end is None else min(end, given.end_ms)
        first = First(page, cursor)
        for batch in _window(context, source, wanted, TimeRange(cursor.time_ms, end), report, job, started):
            first.add(batch)
            del batch  # The next records may be as large, so they are read one at a time.
        if not page.add_rows(first.sorted()):
            shown = page.records[-1]
            return str(TimeCursor(int(shown["timestamp_ms"]), shown["partition"], int(shown["offset"])))
        if end is None:
            return None
        width = max(1, end - cursor.time_ms) * GROWTH
        cursor = TimeCursor(end)
        if job.is_late():
            return str(cursor)
    return None


def _window(
    context: Context, source: Source, wanted: Wanted, window: TimeRange, report: ScanReport, job: Job, started: float
) -> Iterator[pa.RecordBatch]:
    for number in wanted.partitions(source):
        if source.log_dir is not None and _is_outside(context, source.log_dir, wanted, number, window, report, job):
            continue
        request = replace(wanted.request_for(number, None), time=window)
        for split in pieces(source, request, report, job):
            yield from filtered(split.read(views=True, report=report, reading=source.reading), wanted.filters)
            job.check()
            if time.monotonic() - started > MOST_S:
                raise InvalidArgumentError(
                    f"sorting by time requires reading the whole range, which takes more than {MOST_S:.0f} s",
                    expected="a shorter range, sorting by offset, or time maps (tidelog index rebuild)",
                )


def _is_outside(
    context: Context, log_dir: LogDir, wanted: Wanted, number: int, window: TimeRange, report: ScanReport, job: Job
) -> bool:
    """Return whether the maps show that a partition has no record in a window, so that the partition need not be read. Report
    missing offsets as a scan would.
    """
    if wanted.request.isolation == READ_COMMITTED:
        return False
    with log_dir.log(wanted.request.topic, number) as log:
        for segment in log.segments:
            found = None if not segment.size_bytes else context.maps.map_of(segment, job)
            end = segment.end_position
            segment.close()
            if end and (found is None or found.time_map.covered_bytes < end):
                return False
            if found is not None:
                known = found.time_map
                if known.blocks_in_time(range(known.blocks), window.start_ms, window.end_ms):
                    return False
        new = [one for one in log.missing() if one not in report.missing]
        report.missing += tuple(new)
    return True


def _window_end(context: Context, source: Source, wanted: Wanted, start_ms: int, records: int, job: Job) -> int | None:
    """Return a time such that about `records` records lie between `start_ms` and that time, by the time maps. None if the maps do
    not show such a time.
    """
    if source.log_dir is None:
        return None
    ends: list[tuple[int, int]] = []
    starts: list[pa.Array] = []
    for number in wanted.partitions(source):
        with source.log_dir.log(wanted.request.topic, number) as log:
            for segment in log.segments:
                found = context.maps.map_of(segment, job)
                segment.close()
                if found is None:
                    if segment.is_last:
                        continue
                    return None
                counts = found.time_map.records
                spans = enumerate(zip(found.lows, found.highs, strict=True))
                ends += [(high, counts[block]) for block, (low, high) in spans if start_ms <= low <= high]
                starts.append(found.starts([(0, len(counts))]))
    return min((one for one in (_of_main_spans(ends, records), _of_starts(starts, start_ms, records)) if one), default=None)


def _of_main_spans(ends: list[tuple[int, int]], records: int) -> int | None:
    ends.sort()
    for most_ms, count in ends:
        records -= count
        if records <= 0:
            return most_ms + 1
    return None


def _of_starts(starts: list[pa.Array], start_ms: int, records: int) -> int | None:
    """Return the time by which that many spans, `records`, have begun; None if there are fewer spans. Spans stand for records
    here, because most spans have one record if all records of a range are late.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks = pa.chunked_array(starts, pa.int64())
    later = chunks.filter(pc.and_(pc.greater_equal(chunks, int64(start_ms)), pc.less(chunks, int64(2**62)))).combine_chunks()
    if len(later) < records:
        return None
    place = pc.partition_nth_indices(later, pivot=records - 1)[records - 1]
    return int(later[place.as_py()].as_py()) + 1


class First:
    """The first `count` records after a cursor, sorted, in the form of the response. They do not keep the log's buffers in
    memory.
    """

    def __init__(self, page: Page, cursor: TimeCursor) -> None:
        self._page = page
        self._count = page.room
        self._cursor = cursor
        self._held: list[tuple[TimeCursor, tuple[Answer, int]]] = []
        self._latest: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records in any order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        cursor = self._cursor
        times = batch.column("timestamp").cast(pa.int64())
        mask = pc.greater_equal(times, int64(cursor.time_ms))
        if self._latest is not None:
            mask = pc.and_(mask, pc.less_equal(times, int64(self._latest)))
        if cursor.partition >= 0:
            partitions, partition = batch.column("partition").cast(pa.int64()), int64(cursor.partition)
            later = pc.and_(pc.equal(partitions, partition), pc.greater(batch.column("offset"), int64(cursor.offset)))
            later = pc.or_(pc.greater(partitions, partition), later)
            mask = pc.and_(mask, pc.or_(pc.greater(times, int64(cursor.time_ms)), later))
        wanted = pc.indices_nonzero(mask)
        if len(wanted) > self._count:
            keys = batch.select([name for name, _ in ORDER]).take(wanted)
            wanted = wanted.take(pc.select_k_unstable(keys, self._count, sort_keys=ORDER))
        for row in self._page.rows(batch, wanted.to_pylist()):
            shown = row[0]
            self._held.append((TimeCursor(int(shown["timestamp_ms"]), shown["partition"], int(shown["offset"])), row))
        if len(self._held) >= 2 * self._count:
            self.sorted()

    def sorted(self) -> list[tuple[Answer, int]]:
        """Return the first records, sorted."""
        self._held.sort(key=itemgetter(0))
        del self._held[self._count :]
        if self._held and len(self._held) == self._count:
            self._latest = self._held[-1][0].time_ms
        return [row for _, row in self._held]
