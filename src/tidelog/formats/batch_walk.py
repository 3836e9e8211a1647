"""Walks from batch to batch through a ``.log``, in chunks read by `pread`. A walk needs memory for only one chunk, even if the
file is damaged.

Each header is checked against its neighbours, because v2's checksum does not cover the base offset: offsets grow, start at
the segment's base or above, and end below the next segment's. With `crc` each batch is read and its checksum verified.
Without `crc`, only the headers of large batches are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Protocol

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import MAX_OFFSET
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, MIN_HEADER_BYTES, MIN_LENGTH, BatchHeader, check_crc, read_header
from tidelog.records.kernel import crc32c


class Readable(Protocol):
    """An open ``.log``, in the folder that this process owns or in any other folder."""

    @property
    def path(self) -> FilePath: ...

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`, fewer only at the end of the file."""


FIRST_READ_BYTES = 8 * 1024
"""The size of the first read. Most look-ups walk one index interval, which is 4 KiB by default."""
MAX_READ_BYTES = 512 * 1024
HOP_READ_BYTES = 4096
_LENGTH = Struct(">i")
_read_v2 = Struct(">qi4xb6xi8xq").unpack_from
"""Base offset, length, magic, last offset delta and largest timestamp of a batch of format v2."""
_V2_BYTES = 43
CRC_START = {0: 16, 1: 16, 2: 21}
"""For each format, the position in a batch of the first byte that the checksum covers. The checksum is in the four bytes before
it.
"""


def walk(
    file: Readable,
    position: int,
    end_position: int,
    *,
    crc: bool = False,
    min_offset: int = 0,
    next_base_offset: int = MAX_OFFSET,
    stop_at_partial: bool = False,
) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in [position, end_position); `position` must be where a batch starts.

    Raises CorruptBatchError for an impossible header, checksum or offset, and for a batch that crosses `end_position` unless
    `stop_at_partial`; SegmentChangedError if the file is now shorter than `end_position`.
    """
    chunk, start, read_bytes = b"", position, FIRST_READ_BYTES // 2
    while position < end_position:
        index = position - start
        if index + HEADER_BYTES > len(chunk) and start + len(chunk) < end_position:
            read_bytes = _next_read_bytes(read_bytes, index - len(chunk), hop=not crc)
            chunk, start, index = _read(file, position, min(read_bytes, end_position - position)), position, 0
        room = end_position - position
        if room < MIN_HEADER_BYTES or MIN_LENGTH <= _LENGTH.unpack_from(chunk, index + 8)[0] > room - LOG_OVERHEAD:
            if stop_at_partial:
                return
            raise CorruptBatchError("a batch is truncated by the end of its segment", path=file.path, position=position)
        header = read_header(chunk, index, position, file.path)
        first_offset = header.base_offset if header.magic == 2 else header.last_offset
        if first_offset < min_offset:
            raise CorruptBatchError(
                "a batch's offset is too low at this position",
                path=file.path,
                position=position,
                found=first_offset,
                expected=f">= {min_offset}",
            )
        if header.last_offset >= next_base_offset:
            raise CorruptBatchError(
                "a batch's offset is too high for its segment",
                path=file.path,
                position=position,
                found=header.last_offset,
                expected=f"< {next_base_offset}",
            )
        if crc:
            if header.size > MAX_READ_BYTES:
                check_crc_by_pieces(file, header)
            else:
                if index + header.size > len(chunk):
                    size = max(header.size, min(read_bytes, end_position - position))
                    chunk, start, index = _read(file, position, size), position, 0
                check_crc(header, memoryview(chunk)[index : index + header.size], file.path)
        yield header
        min_offset = header.next_offset
        position = header.end_position


def iter_times(file: Readable, position: int, end_position: int, min_offset: int) -> Iterator[tuple[int, int, int]]:
    """Yield, for each batch in [position, end_position), its end, the next offset, and its largest timestamp (ms, -1 for none).

    This is for callers that need only these fields of many batches. Checksums are not verified. Only these fields of a large
    batch are read. Raises CorruptBatchError, also if no batch ends at `end_position`, and SegmentChangedError.
    """
    chunk, start, read_bytes = b"", position, FIRST_READ_BYTES // 2
    while position < end_position:
        index = position - start
        if index + HEADER_BYTES > len(chunk) and start + len(chunk) < end_position:
            is_far = index - len(chunk) > HOP_READ_BYTES
            read_bytes = HEADER_BYTES if is_far else min(max(read_bytes, HOP_READ_BYTES) * 2, MAX_READ_BYTES)
            chunk, start, index = _read(file, position, min(read_bytes, end_position - position)), position, 0
        if index + _V2_BYTES <= len(chunk):
            first, length, magic, delta, timestamp = _read_v2(chunk, index)
        else:
            magic = -1
        if magic == 2 and first >= min_offset and length >= HEADER_BYTES - LOG_OVERHEAD and delta >= 0:
            min_offset = first + delta + 1
            position += length + LOG_OVERHEAD
        else:
            header = next(walk(file, position, end_position, min_offset=min_offset))
            min_offset, position, timestamp = header.next_offset, header.end_position, header.max_timestamp
        if position > end_position:
            raise CorruptBatchError("a batch extends beyond its segment", path=file.path, position=position)
        yield position, min_offset, timestamp


def check_crc_by_pieces(file: Readable, header: BatchHeader) -> None:
    """Verify a batch's checksum in chunks, without reading the whole batch into memory. So a damaged length that is huge
    costs time, but no memory.
    """
    (crc,) = checksums_at(file, header.position, header.magic, (header.end_position,))
    if crc != header.crc:
        raise CorruptBatchError(
            "the batch checksum does not match",
            path=file.path,
            position=header.position,
            found=f"{crc:#010x}",
            expected=f"{header.crc:#010x}",
        )


def checksums_at(file: Readable, position: int, magic: int, ends: Iterable[int]) -> Iterator[int]:
    """For each position in `ends`, yield the checksum that the batch at `position` would have if it ended there. `ends` must
    ascend.
    """
    crc = 0
    position += CRC_START[magic]
    for end in ends:
        while position < end:
            piece = _read(file, position, min(MAX_READ_BYTES, end - position))
            crc = crc32c(piece, crc) if magic == 2 else zlib.crc32(piece, crc)
            position += len(piece)
        yield crc


def _next_read_bytes(read_bytes: int, skipped: int, *, hop: bool) -> int:
    """Return the size of the next read: it grows while batches are small; while they are large, only a header is read."""
    if hop and skipped > HOP_READ_BYTES:
        return HOP_READ_BYTES
    return min(read_bytes * 2, MAX_READ_BYTES)


def _read(file: Readable, position: int, length: int) -> bytes:
    data = file.read(position, length)
    if len(data) < length:
        raise SegmentChangedError(
            "a segment was truncated while it was being read",
            path=file.path,
            position=position,
            found=f"{len(data)} bytes",
            expected=length,
        )
    return data
