"""Reads the batches of a folder's split from its segment in chunks, and checks them against the plan.

Offsets must increase, and each run's first and last batch must be those that the plan found. Batches of aborted transactions are
left out: their producer and offset are in one of the split's aborted ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.files import ReadOnlyFile
from tidelog.records.batch import HEADER_BYTES, BatchHeader, check_crc, iter_headers, read_header
from tidelog.sources.chunks import CHUNK_BYTES, Chunks
from tidelog.sources.files.runs import AbortedRange, BatchMark, Run
from tidelog.sources.scan_report import ScanReport

if TYPE_CHECKING:
    from tidelog.sources.reader_resources import LocatedBatch

LARGE_BATCH_BYTES = 64 * 1024 * 1024
"""A batch of more bytes is checked in pieces before it is read whole, because a damaged size field must not cost memory."""


def folder_batches(
    file: ReadOnlyFile, path: str, runs: Sequence[Run], aborted: Sequence[AbortedRange], report: ScanReport, chunks: Chunks
) -> Iterator[LocatedBatch]:
    """Yield the batches of a split's runs in log order, without batches of aborted transactions. `path` is for errors.

    Control batches are included, and so are records outside the split's bounds at either end. This function checks only the
    checksums of batches that it leaves out.
    """
    batches = _walk(file, path, runs, report, chunks)
    return _without_aborted(batches, path, aborted, report) if aborted else batches


def _without_aborted(
    batches: Iterable[LocatedBatch], path: str, aborted: Sequence[AbortedRange], report: ScanReport
) -> Iterator[LocatedBatch]:
    """Yield the batches that do not belong to aborted transactions. Batches of aborted transactions are checked and counted."""
    ranges = _Aborted(aborted)
    for header, chunk, index in batches:
        if ranges.withholds(header):
            check_crc(header, chunk[index : index + header.size], path)
            report.aborted_batches += 1
        else:
            yield header, chunk, index


def _walk(file: ReadOnlyFile, path: str, runs: Sequence[Run], report: ScanReport, chunks: Chunks) -> Iterator[LocatedBatch]:
    """Yield each batch of the split: its header, a chunk that contains the whole batch, and the batch's start in the chunk."""
    next_offset = runs[0].first_offset
    for run in runs:
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
    """Raise SegmentChangedError unless the batch is the one that the plan found at this position."""
    if header is not None and mark.fits(header):
        return
    what = "the segment was replaced while it was being read"
    if mark.next_offset is not None:
        remedy = f"remove {names.SEGMENT_SUMMARY}, or write it again: `tidelog index rebuild` before the copy"
        what = f"{names.SEGMENT_SUMMARY} in this folder describes a different segment: {remedy}"
    raise SegmentChangedError(what, path=path, position=mark.position)


def _bytes_to_read(file: ReadOnlyFile, chunk: memoryview, index: int, position: int, end: int) -> int:
    """Return how many bytes to read next from `position`. The complete batches in `chunk` end at `index`, which is `position` in
    the file. Usually the result is the size of a chunk. If the next batch is so large that much of a chunk would be read twice,
    the result is the size of that batch plus one more header.
    """
    if index > 0 and len(chunk) - index < HEADER_BYTES:
        return CHUNK_BYTES
    header = read_header(chunk, index, position, file.path)
    if header.end_position > end:
        raise CorruptBatchError(
            "the batch extends beyond the end of its segment",
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
            "the segment was truncated while it was being read",
            path=file.path,
            position=position,
            found=f"{count} bytes",
            expected=len(chunk),
        )


class _Aborted:
    """Tracks which batches a read_committed scan leaves out because their transaction was aborted."""

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for txn in aborted:
            self._ranges.setdefault(txn.producer_id, []).append((txn.first_offset, txn.last_offset))

    def withholds(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. Transactions of one producer never overlap."""
        if header.is_control or not header.is_transactional:
            return False
        return any(first <= header.base_offset <= last for first, last in self._ranges.get(header.producer_id, ()))
