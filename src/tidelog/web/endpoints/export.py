"""`/api/export`: the records of a request as JSON lines or Parquet, the same as `tidelog cat` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import scan_schema
from tidelog.sources.selection.filters import filtered
from tidelog.sources.selection.record_files import Encoding, write_jsonl, write_parquet
from tidelog.sources.selection.row_bytes import rows_apart
from tidelog.sources.selection.sorting import sorted_by_time
from tidelog.web.context import Context
from tidelog.web.decoded import Decoding
from tidelog.web.jobs import LARGE_BYTES, Job
from tidelog.web.query import Query
from tidelog.web.wanted import Wanted, pieces

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


class Export:
    """An export's records and format. Raises InvalidArgumentError for wrong parameters, NotFoundError for an unknown topic."""

    def __init__(self, context: Context, query: Query) -> None:
        self._wanted = Wanted.of(context, query)
        self._pool = context.sources.named(query.text("source"))
        self._format = query.choice("format", tuple(MEDIA_TYPES))
        self._encoding = query.choice("encoding", ("utf8", "base64"))
        self._is_by_time = query.choice("order", ("time", "offset")) == "time"
        self._decodings = Decoding(context, query, self._wanted.request.topic).decodings
        self.media_type = MEDIA_TYPES[self._format]
        self.name = f"{self._wanted.request.topic}.{self._format}"

    def write(self, job: Job, out: BinaryIO) -> None:
        """Write the records. Raises what reading raises, and BusyError during another download."""
        job.take_turn(LARGE_BYTES)
        batches = self._batches(job)
        if self._is_by_time:
            batches = sorted_by_time(batches)
        from tidelog.sources.selection.decoded_records import DecodedRecords

        decoder = None if self._decodings is None else DecodedRecords(self._decodings)
        if self._format == "parquet":
            schema = scan_schema()
            if decoder is not None:
                schema, batches = decoder.typed(batches, schema, [self._wanted.request.topic])
            write_parquet(batches, schema, out)
        else:
            write_jsonl(batches if decoder is None else decoder.displayed(batches), out, Encoding(self._encoding))

    def _batches(self, job: Job) -> Iterator[pa.RecordBatch]:
        with self._pool.borrowed() as source:
            for number in self._wanted.partitions(source):
                for split in pieces(source, self._wanted.request_for(number, None), ScanReport(), job):
                    for batch in split.read(views=True, reading=source.reading):
                        job.check()
                        yield from filtered(rows_apart(batch), self._wanted.filters)
                        del batch  # The next records may be as large.
