"""Reads a split as Arrow batches.

A split is read in chunks. The column kernel checks each batch's checksum and rules the batch out by its header if possible. It
decompresses the other batches and keeps the rows within the bounds. Once there are enough rows or bytes, they become an Arrow
batch. So memory use is about one Arrow batch and one chunk, independent of the size of the log.

| a Kafka batch is | because |
|---|---|
| always checked first | a flipped bit in its largest timestamp would otherwise hide records |
| never part of an aborted transaction | the split has already left such batches out |
| left out if it has control records | they are not data |

The batches come from the split (`Split.batches`). This module has no code for particular kinds of sources.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tidelog.records.columns import Columns
from tidelog.sources.arrow import BATCH_BYTES, GONE, MIN_BATCH_ROWS, Assembler, coalesce
from tidelog.sources.bounds import check_positive
from tidelog.sources.reader_resources import BATCH_ROWS, ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import resolve_columns

if TYPE_CHECKING:
    from tidelog.sources.bounds import TimeRange
    from tidelog.sources.reader_resources import LocatedBatch


class BatchesToRead(Protocol):
    """The parts of a split that its reader uses: topic and partition, the bounds of the records, and the method that reads the
    batches.

    See `Split` for each member.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def time(self) -> TimeRange: ...
    @property
    def high_watermark(self) -> int | None: ...
    @property
    def place(self) -> str: ...
    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]: ...


def read_split(
    split: BatchesToRead,
    columns: Iterable[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    views: bool = False,
    report: ScanReport | None = None,
    reading: ReaderResources | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as Arrow batches. `Split.read` documents the batches and the errors."""
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    report = ScanReport() if report is None else report
    if reading is not None:
        return coalesce(read_rows(split, names, batch_rows, views, report, reading), batch_rows)
    return _read_alone(split, names, batch_rows, views, report)


def _read_alone(
    split: BatchesToRead, names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    with ReaderResources() as reading:
        yield from coalesce(read_rows(split, names, batch_rows, views, report, reading), batch_rows)


def read_rows(
    split: BatchesToRead, names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport, reading: ReaderResources
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split in Arrow batches of up to `batch_rows` rows. Small batches are not combined."""
    columns = Columns(
        split.time.start_ms,
        split.time.end_ms,
        split.start_offset,
        split.end_offset,
        names=[name for name in names if name not in ("topic", "partition")],
    )
    assembler = Assembler(split.topic, split.partition, names, views)
    high_watermark = split.high_watermark
    if high_watermark is not None and split.end_offset <= high_watermark:
        high_watermark = None
    batches = split.batches(reading, report)
    return _collect(batches, columns, assembler, batch_rows, report, split.place, high_watermark)


def _collect(
    batches: Iterable[LocatedBatch],
    columns: Columns,
    assembler: Assembler,
    batch_rows: int,
    report: ScanReport,
    path: str,
    high_watermark: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition's batches in Arrow batches. If `high_watermark` is given, rows at or above it are counted.

    If records were deleted, the records before them are yielded first, then the error is raised.
    """
    rows = 0
    try:
        for header, chunk, index in batches:
            if rows >= MIN_BATCH_ROWS and rows + header.record_count > batch_rows:
                yield from _emit(columns, assembler, batch_rows, report, high_watermark)
                rows = 0
            rows += columns.add(header, chunk, index, path)
            if rows >= batch_rows or columns.source_bytes >= BATCH_BYTES:
                yield from _emit(columns, assembler, batch_rows, report, high_watermark)
                rows = 0
    except GONE:
        # The records before the loss are complete, and a stream that tolerates losses delivers them.
        yield from _emit(columns, assembler, batch_rows, report, high_watermark)
        raise
    yield from _emit(columns, assembler, batch_rows, report, high_watermark)


def _emit(
    columns: Columns, assembler: Assembler, batch_rows: int, report: ScanReport, high_watermark: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the collected rows, and clear the columns."""
    rows = columns.rows
    report.records += rows
    report.without_timestamp += columns.without_timestamp
    if high_watermark is not None and rows:
        offsets = memoryview(columns.offsets()).cast("q")
        report.above_high_watermark += rows - bisect_left(offsets, high_watermark)
    # A Kafka batch may have more rows than requested, and decompress to a hundred times its size. So make pieces of similar size.
    pieces = max(-(-rows // batch_rows), min(rows, columns.source_bytes // BATCH_BYTES))
    for piece in range(pieces):
        yield assembler.assemble(columns, rows * piece // pieces, rows * (piece + 1) // pieces)
    columns.clear()
