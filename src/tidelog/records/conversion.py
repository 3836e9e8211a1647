"""Converts records between message formats, codecs and timestamp types.

    who                         from → to                           the records' times      lost
    a leader, appending         any → the topic's format and codec  kept; LogAppendTime:    nothing, or it is refused
                                                                    deltas in v2 kept
    a leader, old fetchers      newer → an older format, same codec kept, type kept         control batches, headers,
                                                                                            producers

`rebuild` builds the batch (or the messages) from records, byte for byte as Kafka 3.9.1 does. `recompress` is for a v2 batch whose
records need no change: it compresses them with a different codec and does not check them. `down_convert` is for old fetchers:
versions 0 and 1 of Fetch support format v0, versions 2 and 3 also v1, later versions all formats (spec §12).

This module is pure. `validation` uses it if it cannot change a batch in place, and a broker's fetch uses it for old clients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import CREATE_TIME, HEADER_BYTES, LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, BatchHeader, check_crc
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2, pack_header_v2
from tidelog.records.compression import Bytes, Codec, compress, room
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.pieces import extreme, increase
from tidelog.records.records import Record
from tidelog.records.scanner import scan_batch


class Target(NamedTuple):
    """The format to which records are converted."""

    magic: int
    codec: Codec
    level: int | None = None
    """The compression level; None means the codec's default."""
    timestamp_type: int = CREATE_TIME
    append_time: int = NO_TIMESTAMP
    """The append time in epoch ms, if the timestamp type is LogAppendTime."""
    leader_epoch: int = NO_LEADER_EPOCH


def rebuild(
    records: Sequence[Record],
    target: Target,
    *,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return the records, with their offsets, as one batch. In uncompressed v0 and v1, each record becomes a separate message.

    Raises InvalidArgumentError for records that the format cannot hold: headers before v2, a negative timestamp, offsets that do
    not increase. Raises UnsupportedCompressionTypeError for zstd before v2.
    """
    if target.magic == 2:
        return build_batch_v2(
            records,
            codec=target.codec,
            level=target.level,
            timestamp_type=target.timestamp_type,
            append_time=target.append_time,
            leader_epoch=target.leader_epoch,
            producer=producer,
            is_transactional=is_transactional,
            is_control=is_control,
        )
    check_codec(target.codec, target.magic)
    if target.timestamp_type == LOG_APPEND_TIME:
        # In a rebuilt v1 wrapper, the inner messages get the append time too.
        records = [record._replace(timestamp=target.append_time) for record in records]
    return build_message_set(
        records,
        target.magic,
        codec=target.codec,
        level=target.level,
        timestamp_type=target.timestamp_type,
        append_time=target.append_time,
    )


def recompress(section: Bytes, header: BatchHeader, base_offset: int, max_timestamp: int, target: Target) -> bytearray:
    """Build a v2 batch from `section`, the decompressed records of the batch with `header`.

    The records are not changed, so their offset deltas must be 0, 1, 2... and the first timestamp must equal the base timestamp.
    """
    packed = compress(target.codec, section, target.level)
    buffer = bytearray(HEADER_BYTES + len(packed))
    buffer[HEADER_BYTES:] = packed
    pack_header_v2(
        buffer,
        base_offset=base_offset,
        last_offset=base_offset + header.record_count - 1,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        record_count=header.record_count,
        codec=target.codec,
        timestamp_type=target.timestamp_type,
        leader_epoch=target.leader_epoch,
        producer=producer_of(header),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
    return buffer


def down_convert(data: Bytes, header: BatchHeader, magic: int, first_offset: int) -> Bytes:
    """Convert a batch of `data` for a fetcher that requested `first_offset` and supports formats up to `magic`.

    The header's position is relative to `data`. A batch of format `magic` and below is returned as it is, a slice of `data`.
    Others keep their codec, timestamps and timestamp type, but lose record headers and producers. Nothing remains of a control
    batch. Records before `first_offset` in an uncompressed batch are left out, because old clients rely on this (spec §12).
    Raises UnsupportedCompressionTypeError for a v2 batch with zstd, CorruptBatchError, InvalidRecordError and DecompressionError.
    """
    batch = memoryview(data)[header.position : header.end_position]
    if header.magic <= magic:
        return batch
    check_crc(header, batch)  # Verify first: one flipped bit can turn any batch into a control batch.
    return b"" if header.is_control else _down_convert_batch(header, batch, magic, first_offset)


def _down_convert_batch(header: BatchHeader, batch: memoryview, magic: int, first_offset: int) -> Bytes:
    """Convert a batch's records to messages, as `rebuild` does, but without an object per record."""
    check_codec(header.codec, magic)
    rows = kernel.Rows()
    count, data = scan_batch(rows, header, batch)
    offsets, timestamps, key_positions, key_lengths, value_positions, value_lengths = map(rows.column, _MESSAGE_COLUMNS)
    codec = header.codec
    if header.magic == 1 and not increase(offsets):
        raise InvalidArgumentError("offsets in a compressed message do not increase", found=f"last offset {header.last_offset}")
    first = bisect_left(offsets, first_offset) if codec is Codec.NONE else 0
    if first == count:
        return bytearray()
    is_relative = codec is not Codec.NONE and magic == 1
    attributes = LOG_APPEND_TIME_BIT if magic == 1 and header.timestamp_type == LOG_APPEND_TIME else 0
    messages = room(kernel.messages_bytes(key_lengths, value_lengths, first, count, magic))
    fault = kernel.encode_messages(
        messages,
        data,
        offsets,
        timestamps,
        key_positions,
        key_lengths,
        value_positions,
        value_lengths,
        first,
        count,
        offsets[0] if is_relative else 0,
        magic,
        attributes,
    )
    if fault >= 0:
        raise InvalidArgumentError("a record has a negative timestamp", found=timestamps[fault])
    if codec is Codec.NONE:
        return messages
    # With LogAppendTime, all records have the batch's timestamp.
    wrapped = compress(codec, messages, None, magic=magic)
    return bytearray(
        encode_message(
            magic,
            offsets[-1],
            extreme(max, timestamps),
            None,
            bytes(wrapped),
            codec=codec,
            timestamp_type=header.timestamp_type,
        )
    )


_MESSAGE_COLUMNS = ("offset", "timestamp", "key_position", "key_length", "value_position", "value_length")


def check_codec(codec: Codec, magic: int) -> None:
    """Raise UnsupportedCompressionTypeError for a codec that the message format does not support."""
    if codec is Codec.ZSTD and magic < 2:
        raise UnsupportedCompressionTypeError(f"message format v{magic} does not support zstd")


def producer_of(header: BatchHeader) -> Producer:
    """Return the producer fields of a batch."""
    return Producer(header.producer_id, header.producer_epoch, header.base_sequence)
