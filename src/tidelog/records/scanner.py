"""Decodes a batch into kernel rows: decompresses it, handles the three message formats, and raises kernel faults as errors.

    magic  codec  records are                              offsets                    timestamps
    2      none   after the 61-byte header                base offset + delta        base timestamp + delta, or append time
    2      any    the same, compressed as one block
    0, 1   none   the message itself                       the message's              the message's
    0      any    a message set in the wrapper's value     absolute                   none
    1      any    the same                                 relative to the last one,  the message's, or the wrapper's if the
                                                           whose absolute offset is   wrapper has LogAppendTime
                                                           the wrapper's offset

A v0 wrapper may contain v1 messages, and vice versa: the cleaner of Kafka 0.10.0 left such wrappers in topics whose format had
been changed (spec §10.2). The wrapper determines the meaning of an inner message's offset, and whether the message has no
timestamp (v0 wrapper) or the broker's timestamp. A v0 message has no timestamp in any wrapper.

`columns`, `records` and `validation` use this module.
"""

from __future__ import annotations

from struct import Struct
from typing import NoReturn

from tidelog.errors import CorruptBatchError, InvalidRecordError
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, BatchHeader, PathLike
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES, Bytes, Codec, decompress

_INT32 = Struct(">i")


def scan_batch(
    rows: kernel.Rows,
    header: BatchHeader,
    buffer: Bytes,
    index: int = 0,
    *,
    source: int = 0,
    limit: int = kernel.NO_LIMIT,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    path: PathLike = None,
) -> tuple[int, Bytes]:
    """Append the records of the batch at `buffer[index:]` to `rows`. Return their number, and the buffer to which positions
    refer.

    That buffer is `buffer` itself, or the decompressed records. The checksum is not verified. Raises CorruptBatchError,
    InvalidRecordError or DecompressionError; after an error `rows` is unchanged.
    """
    end = index + header.size
    if end > len(buffer):
        raise CorruptBatchError(
            "the batch is truncated",
            path=path,
            position=header.position,
            found=f"{len(buffer) - index} bytes",
            expected=header.size,
        )
    magic = header.magic
    if magic == 2:
        start = index + HEADER_BYTES
        data = buffer
        if header.is_compressed:
            codec = _codec(header, path)
            records = memoryview(buffer)[start:end]
            # A batch whose records were all removed keeps its codec and has no compressed block.
            empty = header.record_count == 0 and not records
            data = records if empty else decompress(codec, records, limit_bytes=limit_bytes, path=path, position=header.position)
            start, end = 0, len(data)
        count = kernel.scan_records_v2(
            rows,
            data,
            start,
            end,
            header.record_count,
            header.base_offset,
            header.last_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
            source,
            limit,
        )
    else:
        base_offset = 0
        start = index
        data = buffer
        nested = header.is_compressed
        if nested:
            data = unwrap(header, buffer, index, limit_bytes=limit_bytes, path=path)
            start, end = 0, len(data)
            base_offset = wrapped_base_offset(header, data, path)
        count = kernel.scan_messages(
            rows, data, start, end, magic, base_offset, header.max_timestamp, header.timestamp_type, nested, nested, source, limit
        )
    if count < 0:
        raise_fault(count, rows.fault_position, header, None if header.is_compressed else index, path)
    return count, data


def _codec(header: BatchHeader, path: PathLike) -> Codec:
    try:
        return header.codec
    except CorruptBatchError as error:
        error.path = path if path is None else str(path)
        raise


def unwrap(
    header: BatchHeader,
    buffer: Bytes,
    index: int = 0,
    *,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    path: PathLike = None,
) -> Bytes:
    """Return the message set inside the compressed v0 or v1 message at `buffer[index:]`.

    Raises InvalidRecordError, DecompressionError.
    """
    codec = _codec(header, path)
    if codec is Codec.ZSTD:
        raise InvalidRecordError(f"message format v{header.magic} does not support zstd", path=path, position=header.position)
    end = index + header.size
    at = index + (18 if header.magic == 0 else 26)
    (key_length,) = _INT32.unpack_from(buffer, at)
    at += 4 + max(key_length, 0)
    if at + 4 > end:
        raise InvalidRecordError(
            "the key of a compressed message is longer than the message", path=path, position=header.position, found=key_length
        )
    (value_length,) = _INT32.unpack_from(buffer, at)
    at += 4
    if value_length < 0:
        raise InvalidRecordError("a compressed message has no value", path=path, position=header.position)
    if value_length > end - at:
        raise InvalidRecordError(
            "the value of a compressed message is longer than the message",
            path=path,
            position=header.position,
            found=value_length,
        )
    return decompress(
        codec,
        memoryview(buffer)[at : at + value_length],
        magic=header.magic,
        limit_bytes=limit_bytes,
        path=path,
        position=header.position,
    )


def wrapped_base_offset(header: BatchHeader, data: Bytes, path: PathLike = None) -> int:
    """Return the number to add to the offsets in `data`, which is the message set inside a compressed message.

    In v1 these offsets are relative, and the wrapper has the absolute offset of the last message. A wrapper with offset 0 comes
    from a producer that did not set the offset, so its base is 0.
    """
    messages, last_offset = kernel.last_message_offset(data, 0, len(data))
    if messages < 0:
        raise_fault(messages, last_offset, header, None, path)
    if header.magic == 0 or header.base_offset == 0:
        return 0
    if last_offset < 0:
        raise InvalidRecordError(
            "a compressed message contains a negative offset", path=path, position=header.position, found=last_offset
        )
    if header.base_offset < last_offset:
        raise InvalidRecordError(
            "the offset of a compressed message is below the last offset inside the message",
            path=path,
            position=header.position,
            found=header.base_offset,
            expected=f"at least {last_offset}",
        )
    return header.base_offset - last_offset


def raise_fault(fault: int, fault_position: int, header: BatchHeader, index: int | None, path: PathLike) -> NoReturn:
    """Raise the error for a kernel fault. `index` is the start of the batch in an uncompressed buffer, or None for a compressed
    batch.
    """
    what = kernel.FAULTS[fault]
    if index is None:
        raise InvalidRecordError(
            f"invalid record at byte {fault_position} of the decompressed batch: {what}", path=path, position=header.position
        )
    raise InvalidRecordError(f"invalid record: {what}", path=path, position=header.position + fault_position - index)
