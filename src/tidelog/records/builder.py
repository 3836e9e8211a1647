"""Builds batches from records, byte for byte as Kafka 3.9.1 does.

`build_batch_v2` accepts single records; `build_batch_v2_from_columns` accepts Arrow-like columns, without an object per record.
`batch` describes the header fields.

    field            CreateTime                    LogAppendTime
    base timestamp   the first record's            the first record's: deltas keep the producers' times
    max timestamp    largest of the records        the append time
    with a delete horizon, the base timestamp is the horizon and deltas are relative to it

`validation`, which rewrites the batches of producers, uses these functions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple, cast

from tidelog.errors import InvalidArgumentError
from tidelog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import (
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from tidelog.records.compression import Codec, compress
from tidelog.records.control import ControlType, control_key, end_txn_value
from tidelog.records.kernel import crc32c
from tidelog.records.patch import set_base_offset_and_epoch as set_base_offset_and_epoch
from tidelog.records.records import Record

_HEADER = Struct(">qiibIhiqqqhii")
_UINT32 = Struct(">I")

MAX_OFFSET_DELTA = (1 << 31) - 1

Headers = Iterable[tuple[str, bytes | None]]


class Producer(NamedTuple):
    """The producer fields of a batch; all -1 unless the producer is idempotent or transactional."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = Producer()


class BuiltBatch(NamedTuple):
    """A finished batch, with the facts that appending it to a log needs."""

    data: bytearray
    base_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    """The largest timestamp (ms), -1 if there is none. For LogAppendTime, this is the append time."""


def pack_header_v2(
    buffer: bytearray | memoryview,
    *,
    base_offset: int,
    last_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    codec: Codec = Codec.NONE,
    timestamp_type: int = CREATE_TIME,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> None:
    """Write header and checksum into the first 61 bytes of `buffer`. The bytes after these must hold the records as they are to
    be stored.
    """
    if not 0 <= last_offset - base_offset <= MAX_OFFSET_DELTA:
        raise InvalidArgumentError(
            "the offsets of a batch are too far apart", found=f"{base_offset} to {last_offset}", expected="less than 2^31"
        )
    if producer.producer_id == NO_PRODUCER_ID and is_transactional:
        raise InvalidArgumentError("a transactional batch needs a producer id")
    attributes = int(codec)
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    elif timestamp_type != CREATE_TIME:
        raise InvalidArgumentError("a batch needs a timestamp type", found=timestamp_type, expected="0 or 1")
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    if has_delete_horizon:
        attributes |= DELETE_HORIZON_BIT
    _HEADER.pack_into(
        buffer,
        0,
        base_offset,
        len(buffer) - LOG_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer.producer_id,
        producer.producer_epoch,
        producer.base_sequence,
        record_count,
    )
    _UINT32.pack_into(buffer, 17, crc32c(memoryview(buffer)[21:]))


def build_empty_batch_v2(
    base_offset: int,
    last_offset: int,
    *,
    timestamp_type: int = CREATE_TIME,
    max_timestamp: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return a batch without records. The cleaner writes one to keep a producer's last sequence."""
    buffer = bytearray(HEADER_BYTES)
    pack_header_v2(
        buffer,
        base_offset=base_offset,
        last_offset=last_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=max_timestamp,
        record_count=0,
        timestamp_type=timestamp_type,
        leader_epoch=leader_epoch,
        producer=producer,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    return buffer


def build_batch_v2_from_columns(
    timestamps: memoryview | array[int],
    keys: kernel.BinaryColumn,
    values: kernel.BinaryColumn,
    *,
    base_offset: int,
    headers: kernel.BinaryColumn | None = None,
    indices: memoryview | array[int] | None = None,
    offset_deltas: memoryview | array[int] | None = None,
    first: int = 0,
    last: int | None = None,
    limit_bytes: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> BuiltBatch:
    """Build one batch from the entries `first` to `last` (exclusive) of columns, or from as many entries as fit into
    `limit_bytes` uncompressed.

    `timestamps` are int64 (ms); `keys`, `values` and encoded `headers` are columns of bytes. `indices` (int32) map each entry to
    a row. `record_count` of the result is the number of entries in the batch, at least one.
    """
    end = (len(timestamps) if indices is None else len(indices)) if last is None else last
    limit = kernel.NO_LIMIT if limit_bytes is None else limit_bytes - HEADER_BYTES
    try:
        count, size, max_timestamp = kernel.size_records_v2(
            timestamps, keys, values, headers, indices, offset_deltas, delete_horizon_ms, first, end, limit
        )
        if count == 0:
            raise InvalidArgumentError("a batch has no records")
        buffer = bytearray(HEADER_BYTES + size)
        kernel.encode_records_v2(
            buffer,
            HEADER_BYTES,
            timestamps,
            keys,
            values,
            headers,
            indices,
            offset_deltas,
            delete_horizon_ms,
            first,
            first + count,
        )
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, InvalidArgumentError) else InvalidArgumentError(str(error)) from None
    if codec is not Codec.NONE:
        buffer[HEADER_BYTES:] = compress(codec, bytes(memoryview(buffer)[HEADER_BYTES:]), level)
    first_row = first if indices is None else indices[first]
    last_row = first + count - 1 if indices is None else indices[first + count - 1]
    last_delta = count - 1 if offset_deltas is None else offset_deltas[last_row]
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = append_time
    pack_header_v2(
        buffer,
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        base_timestamp=timestamps[first_row] if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=max_timestamp,
        record_count=count,
        codec=codec,
        timestamp_type=timestamp_type,
        leader_epoch=leader_epoch,
        producer=producer,
        is_transactional=is_transactional,
        is_control=is_control,
        has_delete_horizon=delete_horizon_ms is not None,
    )
    return BuiltBatch(buffer, base_offset, base_offset + last_delta, count, max_timestamp)


def build_batch_v2(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Build one batch of `records`, whose offsets must increase. The base offset is by default the first record's offset.

    The records' own timestamps are written. With LogAppendTime they remain readable as create times, and `append_time` is the
    batch's timestamp. Raises InvalidArgumentError if there are no records, if offsets do not increase or span 2^31, or if a
    timestamp is negative.
    """
    if not records:
        raise InvalidArgumentError("a batch has no records")
    base = records[0].offset if base_offset is None else base_offset
    previous = base - 1
    for record in records:
        if record.offset <= previous:
            raise InvalidArgumentError("an offset does not increase", found=record.offset, expected=f"more than {previous}")
        previous = record.offset
    if previous - base > MAX_OFFSET_DELTA:
        raise InvalidArgumentError(
            "the offsets of a batch are too far apart", found=f"{base} to {previous}", expected="less than 2^31"
        )
    try:
        timestamps = array("q", [record.timestamp for record in records])
    except OverflowError:
        raise InvalidArgumentError("a timestamp exceeds an int64") from None
    return build_batch_v2_from_columns(
        timestamps,
        binary_column([record.key for record in records]),
        binary_column([record.value for record in records]),
        base_offset=base,
        headers=binary_column([encode_headers(record.headers) for record in records])
        if any(r.headers for r in records)
        else None,
        offset_deltas=array("i", [record.offset - base for record in records]),
        codec=codec,
        level=level,
        timestamp_type=timestamp_type,
        append_time=append_time,
        leader_epoch=leader_epoch,
        producer=producer,
        is_transactional=is_transactional,
        is_control=is_control,
        delete_horizon_ms=delete_horizon_ms,
    ).data


def build_end_txn_marker(
    offset: int,
    timestamp: int,
    control_type: ControlType,
    producer: Producer,
    *,
    coordinator_epoch: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch with which a coordinator commits or aborts `producer`'s transaction."""
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidArgumentError("a transaction marker must be ABORT or COMMIT", found=control_type.name)
    if producer.producer_id == NO_PRODUCER_ID:
        raise InvalidArgumentError("a transaction marker needs a producer id")
    record = Record(offset, timestamp, CREATE_TIME, control_key(control_type), end_txn_value(coordinator_epoch))
    return build_batch_v2([record], leader_epoch=leader_epoch, producer=producer, is_transactional=True, is_control=True)


def binary_column(entries: Sequence[bytes | None]) -> kernel.BinaryColumn:
    """Return byte strings, or None for null, as a column that the kernel can encode."""
    if None not in entries:
        present = cast("Sequence[bytes]", entries)
        offsets = array("i", accumulate(map(len, present), initial=0))
        return kernel.BinaryColumn(offsets, b"".join(present), None, 0, len(present))
    offsets = array("i", [0])
    validity = bytearray((len(entries) + 7) // 8)
    at = 0
    for i, entry in enumerate(entries):
        if entry is not None:
            validity[i >> 3] |= 1 << (i & 7)
            at += len(entry)
        offsets.append(at)
    return kernel.BinaryColumn(offsets, b"".join([entry for entry in entries if entry is not None]), validity, 0, len(entries))


def encode_headers(headers: Headers) -> bytes:
    """Return headers in the encoding of a v2 record: their number, then each key and value."""
    parts = [b""]
    count = 0
    for key, value in headers:
        text = key.encode("utf-8")
        parts += (encode_varint(len(text)), text)
        parts += (b"\x01",) if value is None else (encode_varint(len(value)), bytes(value))
        count += 1
    parts[0] = encode_varint(count)
    return b"".join(parts)


def encode_varint(value: int) -> bytes:
    """Return an integer as a zig-zag varint."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
