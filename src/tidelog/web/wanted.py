"""The records that a request selects: topic, partitions, times, offsets, filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END
from tidelog.sources.plan import scan_request
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import Filter, filters_for
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.web.context import Context
from tidelog.web.decoded import Decoding
from tidelog.web.jobs import Job
from tidelog.web.query import Query

PIECE_BYTES = 4 << 20
"""About how many bytes of the log are read between two checks of the job's time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that a request selects."""

    request: ScanRequest
    filters: tuple[Filter, ...]
    offset: int | None
    """Only records at or after this offset."""
    end_offset: int | None

    @classmethod
    def of(cls, context: Context, query: Query) -> Wanted:
        """Parse a request's parameters. Raises InvalidArgumentError."""
        start, end = query.range()
        request = scan_request(
            query.required("topic"),
            start=start,
            end=end,
            partitions=query.partitions(),
            isolation=query.choice("isolation", ("read_uncommitted", "read_committed")),
            until=query.choice("until", (LOG_END, HIGH_WATERMARK)),
            clock=context.clock,
        )
        filters = filters_for(
            query.all("key"),
            query.all("grep"),
            query.all("header"),
            query.text("where"),
            ignores_case=query.flag("ignore_case"),
            decodings=Decoding(context, query, request.topic).decodings,
        )
        return cls(request, tuple(filters), query.offset("offset"), query.offset("end_offset"))

    def partitions(self, source: Source) -> list[int]:
        """Return the partitions, ascending. Raises UnknownTopicOrPartitionError."""
        existing = source.partitions(self.request.topic)
        return existing if self.request.partitions is None else list(self.request.partitions)

    def request_for(self, partition: int, first: int | None) -> ScanRequest:
        """Return the scan request for one partition, beginning at the offset `first` if it is given."""
        start = max((one for one in (first, self.offset) if one is not None), default=None)
        end = None if self.end_offset is None else max(self.end_offset, start or 0)
        return replace(self.request, partitions=(partition,), offsets={partition: (start, end)})


def pieces(source: Source, request: ScanRequest, report: ScanReport, job: Job) -> Iterator[Split]:
    """Yield the splits of a request. Splits are small, so that a job can end between two splits. A large split is a large batch:
    before such a split is yielded, the job waits for its turn.
    """
    plan = source.planned(lambda: source.plan(replace(request, split_bytes=PIECE_BYTES)))
    report += plan.known
    for split in plan.splits:
        job.take_turn(split.size_bytes)
        yield split
