"""`/api/records`: a page of records, sorted by offset or by time.

Sorted by offset, the partitions come one after the other, and `next` is the position after the last record. Sorted by time, the
partitions are merged by timestamp, partition and offset. A request reads no more than the page needs, and ends after a time
limit, so a page may have fewer records than requested. If there may be more records, `done` is false, and `next` is the parameter
`after` of the next request.
"""

from __future__ import annotations

from tidelog.errors import InvalidArgumentError
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import filtered
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, plain
from tidelog.web.decoded import Decoding
from tidelog.web.jobs import Job
from tidelog.web.page_of_records import Page
from tidelog.web.query import Query
from tidelog.web.time_order import in_time_order
from tidelog.web.wanted import Wanted, pieces

MAX_RECORDS = 1000


def records(context: Context, query: Query, job: Job) -> Answer:
    """Return a page of records."""
    wanted = Wanted.of(context, query)
    decoding = Decoding(context, query, wanted.request.topic)
    page = Page(query.number("limit", 100, 1, MAX_RECORDS), decoding)
    order = query.choice("order", ("time", "offset"))
    after = query.text("after")
    report = ScanReport()
    with context.sources.named(query.text("source")).borrowed() as source:
        if order == "time":
            following = in_time_order(context, source, wanted, page, after, report, job)
        else:
            following = in_offset_order(source, wanted, page, after, report, job)
    return {
        "records": page.records,
        "next": following,
        "done": following is None,
        "scanned_bytes": plain(report.bytes_read),
        "scanned_records": plain(report.records),
        "notes": [*report.notices(), *decoding.notices()],
    }


def in_offset_order(source: Source, wanted: Wanted, page: Page, after: str | None, report: ScanReport, job: Job) -> str | None:
    """Fill the page. Return where the next page begins, None at the end."""
    start = _place(after)
    for number in wanted.partitions(source):
        if start is not None and number < start[0]:
            continue
        first = start[1] if start is not None and number == start[0] else 0
        for split in pieces(source, wanted.request_for(number, first), report, job):
            if job.is_late():
                return f"{number}.{max(first, split.first_offset)}"
            for batch in split.read(views=True, report=report, reading=source.reading):
                if not all(page.add(kept) for kept in filtered([batch], wanted.filters)):
                    return f"{number}.{page.last_offset + 1}"
                if job.is_late():
                    return f"{number}.{batch.column('offset')[-1].as_py() + 1}"
                del batch  # The next records may be as large, so they are read one at a time.
    return None


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    partition, _, offset = text.partition(".")
    if not all(one.isascii() and one.isdigit() and len(one) < 20 for one in (partition, offset)):
        raise InvalidArgumentError("after", found=repr(text), expected="the `next` of the previous page")
    return int(partition), int(offset)
