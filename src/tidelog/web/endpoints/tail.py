"""`/api/tail`: records as they arrive, as server-sent events.

| event | data |
|---|---|
| start | the offsets from which records are shown |
| record | a record, in the form of `/api/records` |
| dropped | the number of offsets that were skipped, because more records arrived than can be shown |
| problem | why nothing can be read at the moment; the stream continues when reading works again |
| beat | none; sent when there was no other event for a while |
"""

from __future__ import annotations

import json
from dataclasses import replace

from tidelog.model import TopicPartition
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.filters import filtered
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, plain
from tidelog.web.decoded import Decoding
from tidelog.web.jobs import Job
from tidelog.web.page_of_records import Page
from tidelog.web.query import Query
from tidelog.web.wanted import Wanted, pieces

POLL_S = 0.5
BEAT_S = 15.0

MAX_OFFSETS = 2_000
"""The most offsets of a partition that are read at once without filters: more than a person can read."""

MAX_FILTERED = 200_000
"""The most offsets of a partition that are read at once with filters, because few records pass them."""

MAX_SHOWN = 500
"""The most records that are sent at once."""


class Tail:
    """The records of a topic from now on. With `last=N`, the last N offsets of each partition come first."""

    def __init__(self, context: Context, query: Query) -> None:
        self._wanted = Wanted.of(context, query)
        self._pool = context.sources.named(query.text("source"))
        self._decoding = Decoding(context, query, self._wanted.request.topic)
        self._reached: dict[int, int] = {}
        last = query.number("last", 0, 0, MAX_OFFSETS)
        with self._pool.borrowed() as source:
            keys = [TopicPartition(self._wanted.request.topic, number) for number in self._wanted.partitions(source)]
            for key, one in source.ends(keys, self._wanted.request.isolation).items():
                self._reached[key.partition] = max(one.log_start_offset, one.end_offset - last)

    def reached(self) -> Answer:
        """Return the next offset of each partition."""
        return {"offsets": {str(number): plain(offset) for number, offset in self._reached.items()}}

    def poll(self, job: Job) -> list[bytes]:
        """Return the events since the last call."""
        wanted, request = self._wanted, self._wanted.request
        most = MAX_FILTERED if wanted.filters else MAX_OFFSETS
        page, skipped = Page(MAX_SHOWN, self._decoding), 0
        with self._pool.borrowed() as source:
            keys = [TopicPartition(request.topic, number) for number in wanted.partitions(source)]
            for key, ends in source.ends(keys, request.isolation).items():
                reached = self._reached.get(key.partition, ends.log_start_offset)
                if ends.end_offset < reached:
                    reached = ends.log_start_offset  # The topic was recreated, or the log lost its end.
                first = max(reached, ends.end_offset - most, ends.log_start_offset)
                skipped += first - reached
                if first < ends.end_offset:
                    ranges = {key.partition: (first, ends.end_offset)}
                    skipped += self._read(source, replace(request, partitions=None, offsets=ranges), page, job)
                self._reached[key.partition] = ends.end_offset
        found = [event("record", one) for one in page.records]
        if skipped:
            found.append(event("dropped", {"offsets": plain(skipped)}))
        return found

    def _read(self, source: Source, request: ScanRequest, page: Page, job: Job) -> int:
        skipped = 0
        for split in pieces(source, request, ScanReport(), job):
            for batch in split.read(views=True, reading=source.reading):
                for kept in filtered([batch], self._wanted.filters):
                    before = len(page.records)
                    page.add(kept)
                    skipped += kept.num_rows - (len(page.records) - before)
                job.check()
        return skipped


def event(name: str, data: Answer) -> bytes:
    """Encode one server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")
