"""From a split to Arrow batches.

A split is read in chunks. Batches of a chunk are handed to the column kernel, which checks their checksum, rules them out by
their header where it can, decompresses, and keeps the rows that are inside the bounds. Rows become an Arrow batch when there
are enough of them, or enough bytes. So what is in memory is about one Arrow batch and one chunk, whatever the log holds.

| a Kafka batch | why |
|---|---|
| is checked first, in any case | a flipped bit in its largest timestamp would otherwise hide records |
| of an aborted transaction is left out | its producer and offset are in one of the split's aborted ranges |
| of control records is left out | they are no data |

What the walk must find: offsets that only grow, and as each run's first and last batch exactly those that the plan saw there.
Only `tidelog.sources.stream`, Spark's source and their like call this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.files import ReadOnlyFile
from tidelog.records.batch import HEADER_BYTES, BatchHeader, check_crc, iter_headers, read_header
from tidelog.records.columns import Columns
from tidelog.sources.arrow import BATCH_BYTES, BATCH_ROWS, GONE, MIN_BATCH_ROWS, Assembler, coalesce
from tidelog.sources.bounds import check_positive
from tidelog.sources.chunks import CHUNK_BYTES, Chunks
from tidelog.sources.report import ScanReport
from tidelog.sources.schema import resolve_columns
from tidelog.sources.split import BatchMark, Split

LocatedBatch = tuple[BatchHeader, memoryview, int]
"""A batch's header, memory that holds it whole, and where in that it starts."""

LARGE_BATCH_BYTES = 64 * 1024 * 1024
"""A batch that claims more is checked in pieces before it is read whole: damage must not cost memory."""


def read_split(
    split: Split,
    columns: Iterable[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    views: bool = False,
    report: ScanReport | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as Arrow batches with the schema `scan_schema(columns, views=views)`, in offset order.

    Batches have `batch_rows` rows at most and 10,000 at least; fewer only at the end, and where records are so large
    that 32 MiB hold fewer.

    Raises:
        SegmentChangedError: the segment vanished, shrank or was replaced since the plan.
        CorruptDataError: damaged batches, with path and position.
    """
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    rows = read_rows(split, names, batch_rows, views, ScanReport() if report is None else report, Chunks())
    return coalesce(rows, batch_rows)


def read_rows(
    split: Split,
    names: tuple[str, ...],
    batch_rows: int,
    views: bool,
    report: ScanReport,
    chunks: Chunks,
    opened: ReadOnlyFile | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as they come, in Arrow batches of up to `batch_rows` rows and possibly few.

    `opened` is what `split.open()` gave, where that was called before; it is closed at the end.
    """
    bounds = split.time
    columns = Columns(
        bounds.start_ms,
        bounds.end_ms,
        split.start_offset,
        split.end_offset,
        names=[name for name in names if name not in ("topic", "partition")],
    )
    assembler = Assembler(split.topic, split.partition, names, views)
    high_watermark = split.high_watermark
    if high_watermark is not None and split.end_offset <= high_watermark:
        high_watermark = None
    batches = read_batches(split, report, chunks, opened)
    yield from collect(batches, columns, assembler, batch_rows, report, split.path, high_watermark)


def read_batches(split: Split, report: ScanReport, chunks: Chunks, opened: ReadOnlyFile | None = None) -> Iterator[LocatedBatch]:
    """Yield the batches of a split as they lie in the log, without those of aborted transactions.

    Control batches are among them, and what lies outside of the split's bounds at either end. Only what is left out has had
    its checksum looked at.
    """
    with split.open() if opened is None else opened as file:
        batches = _walk(file, split, report, chunks)
        if split.aborted:
            batches = _without_aborted(batches, split, report)
        yield from batches


def collect(
    batches: Iterable[LocatedBatch],
    columns: Columns,
    assembler: Assembler,
    batch_rows: int,
    report: ScanReport,
    path: str,
    high_watermark: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition's batches in Arrow batches. Rows from `high_watermark` on are counted, if it is given.

    Where records are gone, what lies before them comes first, and then the error.
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
        # What was read before is there: a stream that minds no losses delivers it.
        yield from _emit(columns, assembler, batch_rows, report, high_watermark)
        raise
    yield from _emit(columns, assembler, batch_rows, report, high_watermark)


def _emit(
    columns: Columns, assembler: Assembler, batch_rows: int, report: ScanReport, high_watermark: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows collected so far and start over."""
    rows = columns.rows
    report.records += rows
    report.without_timestamp += columns.without_timestamp
    if high_watermark is not None and rows:
        offsets = memoryview(columns.offsets()).cast("q")
        report.above_high_watermark += rows - bisect_left(offsets, high_watermark)
    # One Kafka batch may hold more than asked for, and unpack to a hundred times of it: pieces of about the same size, none tiny.
    pieces = max(-(-rows // batch_rows), min(rows, columns.source_bytes // BATCH_BYTES))
    for piece in range(pieces):
        yield assembler.assemble(columns, rows * piece // pieces, rows * (piece + 1) // pieces)
    columns.clear()


def _without_aborted(batches: Iterable[LocatedBatch], split: Split, report: ScanReport) -> Iterator[LocatedBatch]:
    """Yield the batches that no aborted transaction wrote; the others are checked all the same, and counted."""
    aborted = _Aborted(split)
    for header, chunk, index in batches:
        if aborted.withholds(header):
            check_crc(header, chunk[index : index + header.size], split.path)
            report.aborted_batches += 1
        else:
            yield header, chunk, index


def _walk(file: ReadOnlyFile, split: Split, report: ScanReport, chunks: Chunks) -> Iterator[LocatedBatch]:
    """Yield each batch of the split: its header, a chunk that holds it whole, and where in the chunk it starts."""
    path = split.path
    next_offset = split.runs[0].first.base_offset
    for run in split.runs:
        position, end = run.start_position, run.end_position
        first_position, header = position, None
        read_bytes = CHUNK_BYTES
        while position < end:
            chunk = chunks.take(min(read_bytes, end - position))
            _fill(chunk, file, position)
            report.bytes_read += len(chunk)
            start = position
            for header in iter_headers(chunk, position, path):
                first_offset = header.base_offset
                if first_offset < next_offset:
                    raise CorruptBatchError(
                        "offsets go backward",
                        path=path,
                        position=header.position,
                        found=first_offset,
                        expected=f"at least {next_offset}",
                    )
                if header.position == first_position:
                    _check_mark(header, run.first, path)
                yield header, chunk, header.position - start
                next_offset = header.last_offset + 1
                position = header.position + header.size
                report.batches += 1
            if position < end:
                read_bytes = _bytes_to_read(file, chunk, position - start, position, end)
        _check_mark(header, run.last, path)


def _check_mark(header: BatchHeader | None, mark: BatchMark, path: str) -> None:
    """Raise SegmentChangedError unless the batch is the one that the plan saw there."""
    if header is None or BatchMark.of(header) != mark:
        raise SegmentChangedError("segment was replaced while it was read", path=path, position=mark.position)


def _bytes_to_read(file: ReadOnlyFile, chunk: memoryview, index: int, position: int, end: int) -> int:
    """Return how much to read next, from `position`, where the whole batches of `chunk` end, at `index`.

    A chunk; but where the next batch is so large that much of a chunk would be read twice, that batch and one more header.
    """
    if index > 0 and len(chunk) - index < HEADER_BYTES:
        return CHUNK_BYTES
    header = read_header(chunk, index, position, file.path)
    if header.end_position > end:
        raise CorruptBatchError(
            "batch reaches beyond its place",
            path=file.path,
            position=position,
            found=f"{header.size} bytes",
            expected=f"at most {end - position}",
        )
    if header.size > LARGE_BATCH_BYTES:
        check_crc_by_pieces(file, header)
    return CHUNK_BYTES if header.size < CHUNK_BYTES // 4 else header.size + HEADER_BYTES


def _fill(chunk: memoryview, file: ReadOnlyFile, position: int) -> None:
    count = file.read_into(position, chunk)
    if count < len(chunk):
        raise SegmentChangedError(
            "segment shrank while it was read", path=file.path, position=position, found=f"{count} bytes", expected=len(chunk)
        )


class _Aborted:
    """Which batches a read_committed scan withholds because their transaction was aborted."""

    def __init__(self, split: Split) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for txn in split.aborted:
            self._ranges.setdefault(txn.producer_id, []).append((txn.first_offset, txn.last_offset))

    def withholds(self, header: BatchHeader) -> bool:
        """Whether the batch holds records of an aborted transaction. Transactions of one producer never overlap."""
        if header.is_control or not header.is_transactional:
            return False
        return any(first <= header.base_offset <= last for first, last in self._ranges.get(header.producer_id, ()))
