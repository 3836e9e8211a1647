"""Pages of records in the order of time, across partitions.

The records after a cursor, by timestamp, partition and offset. A window of time is read exactly, as by `tidelog.scan`, and the
first records in it are kept. Time maps say how wide the window must be: so wide that the main spans of blocks with enough records
end in it. Then a page costs a few blocks, wherever it is. Without maps the window is the rest of the range, because a late record
may be anywhere.

Records without a timestamp have no place in this order; the answer counts them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.sources.bounds import TimeRange
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import filtered
from tidelog.sources.source import Source
from tidelog.web.context import Context
from tidelog.web.jobs import Job
from tidelog.web.page_of_records import Page
from tidelog.web.values import cut_batch
from tidelog.web.wanted import Wanted, pieces

if TYPE_CHECKING:
    import pyarrow as pa

MOST_S = 30.0
"""How long one window may take: its records cannot be shown before it has been read whole."""

GROWTH = 8
"""How much wider the next window is when too few records are in one, or pass the filters."""

HELD_ROWS = 16_384

ORDER = [("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


class TimeCursor(NamedTuple):
    """The last record that was shown, or a time: `(time, -1, -1)` is before all its records."""

    time_ms: int
    partition: int = -1
    offset: int = -1

    @classmethod
    def parse(cls, text: str) -> TimeCursor:
        """Return a cursor from its text. Raises InvalidArgumentError."""
        parts = text.split(".")
        if len(text) > 64 or len(parts) != 3 or not all(one.removeprefix("-").isdecimal() and one.isascii() for one in parts):
            raise InvalidArgumentError("after", found=repr(text), expected="the `next` of the page before")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return ".".join(map(str, self))


def in_time_order(
    context: Context, source: Source, wanted: Wanted, page: Page, after: str | None, report: ScanReport, job: Job
) -> str | None:
    """Fill the page; return the cursor of the next one, None at the end."""
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
        first = First(page.room, cursor)
        for batch in _window(source, wanted, TimeRange(cursor.time_ms, end), report, job, started):
            first.add(batch)
        found = first.sorted()
        is_room = page.add(found) if found is not None else True
        if not is_room:
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
    source: Source, wanted: Wanted, window: TimeRange, report: ScanReport, job: Job, started: float
) -> Iterator[pa.RecordBatch]:
    for number in wanted.partitions(source):
        request = replace(wanted.request_for(number, None), time=window)
        for split in pieces(source, request, report):
            for batch in split.read(report=report, reading=source.reading):
                yield from filtered([batch], wanted.filters)
            job.check()
            if time.monotonic() - started > MOST_S:
                raise InvalidArgumentError(
                    f"the order of time needs the whole range: not read within {MOST_S:.0f} s",
                    expected="a shorter range, the order of offsets, or time maps (tidelog index rebuild)",
                )


def _window_end(context: Context, source: Source, wanted: Wanted, start_ms: int, records: int, job: Job) -> int | None:
    """Return a time so that there are about `records` in between, from the time maps; None: no such time is known."""
    if source.log_dir is None:
        return None
    ends: list[tuple[int, int]] = []
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
    ends.sort()
    for most_ms, count in ends:
        records -= count
        if records <= 0:
            return most_ms + 1
    return None


class First:
    """The first `count` records after a cursor, in order. Holds their keys and values cut."""

    def __init__(self, count: int, cursor: TimeCursor) -> None:
        self.count = count
        self._cursor = cursor
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._latest: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records of any order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        times = batch.column("timestamp").cast(pa.int64())
        mask = pc.greater_equal(times, self._cursor.time_ms)
        if self._latest is not None:
            mask = pc.and_(mask, pc.less_equal(times, self._latest))
        if self._cursor.partition >= 0:
            partitions, offsets = batch.column("partition"), batch.column("offset")
            later = pc.or_(
                pc.greater(partitions, self._cursor.partition),
                pc.and_(pc.equal(partitions, self._cursor.partition), pc.greater(offsets, self._cursor.offset)),
            )
            mask = pc.and_(mask, pc.or_(pc.greater(times, self._cursor.time_ms), later))
        kept = batch.filter(mask)
        if not kept.num_rows:
            return
        if kept.num_rows > self.count:
            kept = _first_of([kept], self.count)
        self._held.append(cut_batch(kept))
        self._rows += kept.num_rows
        if self._rows >= HELD_ROWS + self.count:
            self.sorted()

    def sorted(self) -> pa.RecordBatch | None:
        """Return the first records, None if there are none."""
        if not self._held:
            return None
        import pyarrow as pa

        first = _first_of(self._held, self.count)
        self._held, self._rows = [first], first.num_rows
        if first.num_rows == self.count:
            self._latest = first.column("timestamp").cast(pa.int64())[-1].as_py()
        return first


def _first_of(batches: list[pa.RecordBatch], count: int) -> pa.RecordBatch:
    import pyarrow as pa

    table = pa.Table.from_batches(batches).sort_by(ORDER).slice(0, count)
    return table.combine_chunks().to_batches()[0]
