"""Reads single records as objects, for display, tests and the last step of a search by time. `columns` reads in bulk.

The functions return, for a batch, its records (`iter_records`), its first offset (`first_offset`), its first record at or after a
timestamp (`first_record_at`, spec §4.9), and its record with the largest timestamp (`max_timestamp_record`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.errors import CorruptBatchError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import batch, kernel
from tidelog.records.batch import LOG_APPEND_TIME, BatchHeader, PathLike
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES, Bytes
from tidelog.records.pieces import extreme, index_of
from tidelog.records.scanner import scan_batch


class Record(NamedTuple):
    """One record. `timestamp` is in epoch ms, -1 for none; `timestamp_type` is -1 (none), 0 (CreateTime) or 1 (LogAppendTime)."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Bounds(NamedTuple):
    """`min_timestamp <= timestamp < end_timestamp` (ms) and `min_offset <= offset < end_offset`; None means no bound.

    If there is a time bound, records without a timestamp are outside.
    """

    min_timestamp: int | None = None
    end_timestamp: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None


NO_BOUNDS = Bounds()


def iter_records(
    header: BatchHeader,
    buffer: Bytes,
    *,
    path: PathLike = None,
    check_crc: bool = True,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    bounds: Bounds = NO_BOUNDS,
) -> Iterator[Record]:
    """Yield a batch's records within bounds, including control records. `buffer` has exactly the batch's bytes.

    The whole batch is checked before the first record is yielded. Raises CorruptBatchError, InvalidRecordError or
    DecompressionError.
    """
    if check_crc:
        batch.check_crc(header, buffer, path)
    rows = kernel.Rows()
    rows.set_bounds(*bounds)
    count, data = scan_batch(rows, header, buffer, limit_bytes=limit_bytes, path=path)
    view = memoryview(data)
    columns = [rows.column(name) for name in _COLUMNS]
    for i in range(count):
        offset, timestamp, timestamp_type, key_at, key_length, value_at, value_length, headers_at, header_count = (
            c[i] for c in columns
        )
        yield Record(
            offset,
            timestamp,
            timestamp_type,
            None if key_length < 0 else bytes(view[key_at : key_at + key_length]),
            None if value_length < 0 else bytes(view[value_at : value_at + value_length]),
            _headers(view, headers_at, header_count) if header_count else (),
        )


def first_offset(header: BatchHeader, read: Callable[[BatchHeader], Bytes], path: PathLike = None) -> int:
    """Return the offset of a batch's first record. Before v2, the header of a compressed message has only the last record's
    offset, so the batch is read with `read`.

    Raises what `iter_records` raises, and CorruptBatchError if the batch has no record.
    """
    if header.magic >= 2 or not header.is_compressed:
        return header.base_offset
    record = next(iter_records(header, read(header), path=path), None)
    if record is None:
        raise CorruptBatchError("a compressed message contains no messages", path=path, position=header.position)
    return record.offset


_COLUMNS = (
    "offset",
    "timestamp",
    "timestamp_type",
    "key_position",
    "key_length",
    "value_position",
    "value_length",
    "headers_position",
    "header_count",
)


def _headers(view: memoryview, at: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    """Decode headers that the kernel has validated. In keys that are not UTF-8, invalid bytes become replacement characters, as
    in Kafka's client.
    """
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _varint(view, at)
        key = bytes(view[at : at + size]).decode("utf-8", "replace")
        size, at = _varint(view, at + size)
        if size < 0:
            headers.append((key, None))
        else:
            headers.append((key, bytes(view[at : at + size])))
            at += size
    return tuple(headers)


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = view[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


class _OneRow(threading.local):
    """Kernel rows for look-ups of a single record. Each thread reuses its rows, because clearing them is faster than creating new
    ones.
    """

    def __init__(self) -> None:
        self.rows = kernel.Rows()


_one_row = _OneRow()


def first_record_at(
    header: BatchHeader,
    buffer: Bytes,
    timestamp: int,
    min_offset: int = 0,
    *,
    path: PathLike = None,
    check_crc: bool = True,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after `timestamp` and `min_offset`, or None if there is none.

    Control records are included. For a LogAppendTime batch without gaps, the header suffices.
    """
    if header.max_timestamp < timestamp or header.last_offset < min_offset:
        return None
    if check_crc:
        batch.check_crc(header, buffer, path)
    if header.timestamp_type == LOG_APPEND_TIME and header.record_count == header.last_offset - header.base_offset + 1:
        return max(header.base_offset, min_offset), header.max_timestamp
    rows = _one_row.rows
    rows.clear()
    rows.set_bounds(timestamp, None, min_offset, None)
    count, _ = scan_batch(rows, header, buffer, limit=1, limit_bytes=limit_bytes, path=path)
    return (rows.column("offset")[0], rows.column("timestamp")[0]) if count else None


def max_timestamp_record(
    header: BatchHeader,
    buffer: Bytes,
    min_offset: int = 0,
    *,
    path: PathLike = None,
    check_crc: bool = True,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with the largest timestamp, or None if no record has a timestamp."""
    if header.max_timestamp == NO_TIMESTAMP:
        return None
    if check_crc:
        batch.check_crc(header, buffer, path)
    rows = kernel.Rows()
    rows.set_bounds(None, None, min_offset, None)
    count, _ = scan_batch(rows, header, buffer, limit_bytes=limit_bytes, path=path)
    if count == 0:
        return None
    timestamps = rows.column("timestamp")
    largest = extreme(max, timestamps)
    return None if largest == NO_TIMESTAMP else (rows.column("offset")[index_of(largest, timestamps)], largest)
