"""Batches of message formats v0 and v1: single messages, and messages that wrap a compressed set of others.

    wrapper            v0                        v1
    offsets inside     absolute                  0, 1, 2... relative to the first, gaps kept
    its own offset     the last one inside       the last one inside
    its timestamp      none                      the largest inside, or the append time
    timestamps inside  none                      the producers'

Kafka writes these no longer; topics that have them must be read, and the formats of old clients are tested with what is
built here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct

from tidelog.errors import InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from tidelog.records.compression import Codec, compress
from tidelog.records.records import Record

_ENTRY = Struct(">qi")
_UINT32 = Struct(">I")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def encode_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Return one message with its offset and size in front. `codec` only marks it: `value` is what is stored.

    v0 has no timestamp: what is given is dropped. Raises InvalidArgumentError for another magic and for a negative timestamp.
    """
    if magic not in (0, 1):
        raise InvalidArgumentError("a legacy message has magic 0 or 1", found=magic)
    if timestamp < NO_TIMESTAMP:
        raise InvalidArgumentError("negative timestamp", found=timestamp)
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"message format v{magic} knows no zstd")
    attributes = int(codec)
    if magic == 1 and timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    parts = [bytes((magic, attributes))]
    if magic == 1:
        parts.append(_INT64.pack(timestamp))
    for field in (key, value):
        parts.append(_INT32.pack(-1 if field is None else len(field)))
        if field is not None:
            parts.append(field)
    body = b"".join(parts)
    return _ENTRY.pack(offset, len(body) + 4) + _UINT32.pack(zlib.crc32(body)) + body


def build_message_set(
    records: Sequence[Record],
    magic: int,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
) -> bytearray:
    """Build a message set: a message per record, or with a codec one wrapper around them all.

    Raises InvalidArgumentError for offsets that do not grow and for headers, which these formats do not have.
    """
    previous = -1
    for record in records:
        if record.offset <= previous:
            raise InvalidArgumentError("offset does not grow", found=record.offset, expected=f"more than {previous}")
        if record.headers:
            raise InvalidArgumentError(f"message format v{magic} has no headers", found=f"offset {record.offset}")
        previous = record.offset
    by_append = timestamp_type == LOG_APPEND_TIME
    if codec is Codec.NONE:
        return bytearray().join(
            encode_message(
                magic,
                record.offset,
                append_time if by_append else record.timestamp,
                record.key,
                record.value,
                timestamp_type=timestamp_type,
            )
            for record in records
        )
    if not records:
        raise InvalidArgumentError("a compressed message of no records")
    first = records[0].offset if magic == 1 else 0
    inside = b"".join(
        encode_message(magic, record.offset - first, record.timestamp, record.key, record.value, timestamp_type=timestamp_type)
        for record in records
    )
    return bytearray(
        encode_message(
            magic,
            previous,
            append_time if by_append else max(record.timestamp for record in records),
            None,
            bytes(compress(codec, inside, level, magic=magic)),
            codec=codec,
            timestamp_type=timestamp_type,
        )
    )
