"""Reads the selected records of one or more topics: all, the last ones, or new ones as they arrive.

A `Reading` plans each topic once, so that the progress bar knows the total. Records are in offset order, partition by partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import show_bytes_size, show_span
from tidelog.cli.records.offset_option import OffsetOption, some_of
from tidelog.model import TopicPartition
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import Filter, filtered
from tidelog.sources.source import Source
from tidelog.sources.split import Split

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.cli.printing.progress_bar import ProgressBar

LARGE_BYTES = 2 << 30
"""A note announces a read of more bytes than this."""

FIRST_WINDOW = 256
"""The number of offsets that `--tail` reads first; each further read covers four times as many."""

POLL_S = 0.3
"""The pause between two polls for new records."""


@dataclass
class Reading:
    """Reads `request`, whose topic is ignored, from each of `topics`."""

    source: Source
    topics: Sequence[str]
    request: ScanRequest
    filters: Sequence[Filter] = ()
    columns: Sequence[str] | None = None
    offsets: OffsetOption | None = None
    max_lateness_ms: int | None = None
    follows: bool = False

    def __post_init__(self) -> None:
        self.report = ScanReport()
        self.not_read: dict[str, tuple[int, int]] = {}
        """The offsets that were not read because of `max_lateness_ms`, by partition."""

    @property
    def assumptions(self) -> dict[str, int]:
        """The assumptions behind the result, as fields that are added to each line of the output."""
        return {} if self.max_lateness_ms is None else {"assumed_max_lateness_ms": self.max_lateness_ms}

    def plans(self) -> list[ScanPlan[Split]]:
        """Return a plan for each topic; facts that are known without reading go into the report."""
        made = []
        if self.max_lateness_ms is not None:
            span = show_span(self.max_lateness_ms)
            notices.note(
                f"assuming that no record is later than {span} (--max-lateness): later records may be missing from the result"
            )
        for topic in self.topics:
            scan_plan = self.source.planned(lambda topic=topic: self.source.plan(self._request_for(topic)))  # type: ignore[misc]
            self.report += scan_plan.known
            made.append(scan_plan)
        return made

    def batches(self, plans: Iterable[ScanPlan[Split]], bar: ProgressBar) -> Iterator[pa.RecordBatch]:
        """Yield the selected records of the plans."""
        return filtered(self._read([split for one in plans for split in one.splits], bar), self.filters)

    def last(self, plans: Iterable[ScanPlan[Split]], count: int, bar: ProgressBar) -> list[pa.RecordBatch]:
        """Return the last `count` selected records.

        For several partitions, these are the records with the latest timestamps among the last records of each partition, in
        order of time.
        """
        from tidelog.sources.selection.sorting import by_time

        found: list[pa.RecordBatch] = []
        parts = [(one.topic, part) for one in plans for part in one.partitions]
        for topic, part in parts:
            found += self._last_of(topic, part.partition, part.start_offset, part.end_offset, count, bar)
        return found if len(parts) == 1 else _last_rows(by_time(found), count)

    def following(self, plans: Iterable[ScanPlan[Split]], bar: ProgressBar) -> Iterator[pa.RecordBatch | None]:
        """Yield records that arrive after the plans were made, without end. Yields None whenever no record is
        available.
        """
        first = 0 if self.offsets is None else self.offsets.first
        reached = {
            TopicPartition(one.topic, part.partition): max(first, part.end_offset) for one in plans for part in one.partitions
        }
        while True:
            self.source.refresh()
            for topic in self.topics:
                existing = self.source.partitions(topic)
                wanted = existing if self.request.partitions is None else self.request.partitions
                keys = [TopicPartition(topic, number) for number in wanted]
                ends = self.source.ends(keys, self.request.isolation, self.request.until)
                new = {key.partition: (reached.get(key, first), one.end_offset) for key, one in ends.items()}
                new = {number: (first, end) for number, (first, end) in new.items() if end > first}
                if new:
                    scan_plan = self.source.plan(replace(self.request, topic=topic, offsets=new, partitions=None))
                    yield from filtered(self._read(scan_plan.splits, bar), self.filters)
                    reached.update({TopicPartition(topic, part.partition): part.end_offset for part in scan_plan.partitions})
            yield None
            time.sleep(POLL_S)

    def _request_for(self, topic: str) -> ScanRequest:
        request = replace(self.request, topic=topic)
        ranges: Mapping[int, tuple[int | None, int | None]] | None = None
        if self.offsets is not None or self.max_lateness_ms is not None:
            numbers = self.source.partitions(topic) if request.partitions is None else request.partitions
            keys = [TopicPartition(topic, number) for number in numbers]
            ends = self.source.ends(keys, request.isolation, request.until)
            ranges = (self.offsets or OffsetOption()).ranges(ends)
            for text in () if self.offsets is None else self.offsets.notices(ends, is_followed=self.follows):
                notices.note(text)
            if self.max_lateness_ms is not None and request.time.end_ms is not None:
                ranges = self._until_late(topic, ranges, request.time.end_ms + self.max_lateness_ms, request)
        return replace(request, offsets=ranges)

    def _until_late(
        self, topic: str, ranges: Mapping[int, tuple[int | None, int | None]], time_ms: int, request: ScanRequest
    ) -> dict[int, tuple[int | None, int | None]]:
        """Return the ranges, each cut before the first record at or after `time_ms`. According to --max-lateness, no record of
        the time range follows that record.
        """
        keys = [TopicPartition(topic, number) for number in ranges]
        found = self.source.find(dict.fromkeys(keys, time_ms), request.isolation, request.until)
        cut = {}
        for number, (first, end) in ranges.items():
            late = found.get(TopicPartition(topic, number))
            until = end if late is None or end is None else max(first or 0, min(end, late.offset))
            if end is not None and until is not None and until < end:
                self.not_read[f"{topic}-{number}"] = until, end
                notices.note(f"{topic}-{number}: offsets [{until}, {end}) were not read because of --max-lateness")
            cut[number] = (first, until)
        return cut

    def _read(self, splits: Iterable[Split], bar: ProgressBar) -> Iterator[pa.RecordBatch]:
        for split in splits:
            before, start_bytes = bar.done_bytes, self.report.bytes_read
            for batch in split.read(self.columns, report=self.report, reading=self.source.reading):
                done_bytes = min(self.report.bytes_read - start_bytes, split.size_bytes) - (bar.done_bytes - before)
                bar.advance(done_bytes, batch.num_rows)
                yield batch
            bar.advance(split.size_bytes - (bar.done_bytes - before))

    def _last_of(
        self, topic: str, partition: int, start_offset: int, end_offset: int, count: int, bar: ProgressBar
    ) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        window, rows, end = max(FIRST_WINDOW, count), 0, end_offset
        while end > start_offset and rows < count:
            first = max(start_offset, end - window)
            request = replace(self.request, topic=topic, partitions=(partition,), offsets={partition: (first, end)})
            newer = list(filtered(self._read(self.source.plan(request).splits, bar), self.filters))
            found = _last_rows([*newer, *found], count)
            rows = sum(batch.num_rows for batch in found)
            window, end = window * 4, first
        return found


def why_empty(plans: Sequence[ScanPlan[Split]]) -> str:
    """Return that the partitions of the plans are empty; "" unless all are."""
    parts = [(one.topic, part) for one in plans for part in one.partitions]
    empty = [f"{topic}-{part.partition} is empty" for topic, part in parts if part.log_start_offset == part.log_end_offset]
    return some_of(empty) if len(empty) == len(parts) else ""


def announce(plans: Sequence[ScanPlan[Split]], *, has_lateness: bool, writes_text: bool) -> None:
    """Announce the size of a large read, about how long it takes, and the reason for it."""
    size_bytes = sum(one.size_bytes for one in plans)
    if size_bytes < LARGE_BYTES:
        return
    # One core reads and parses some hundred MB/s, and writes records as text at a tenth of that. Brokers and disks may be slower.
    about = show_span(max(1, size_bytes // (40_000_000 if writes_text else 300_000_000)) * 1000)
    reason = ""
    if any(one.time.end_ms is not None for one in plans) and not has_lateness:
        reason = (
            "; late records may be anywhere after the start: to read less, limit how late they may be, e.g. --max-lateness 10m"
        )
    notices.print_line(f"reading {show_bytes_size(size_bytes)}, {about} or more{reason}")


def _last_rows(batches: Sequence[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    for batch in reversed(batches):
        if count <= 0:
            break
        part = batch.slice(max(0, batch.num_rows - count))
        found.append(part)
        count -= part.num_rows
    return found[::-1]
