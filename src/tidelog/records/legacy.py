"""Batches of message formats v0 and v1: single messages, and wrapper messages that contain a compressed message set.

    wrapper            v0                        v1
    offsets inside     absolute                  0, 1, 2... relative to the first, gaps kept
    its own offset     the last offset inside    the last offset inside
    its timestamp      none                      the largest timestamp inside, or the append time
    timestamps inside  none                      the producers'

Kafka no longer writes these formats, but topics with them must be readable, and tests build them as old clients do.
`split_messages` and `read_message` parse a set one message at a time, for a leader that checks each message. `scanner` reads in
bulk.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, InvalidRecordError, UnsupportedCompressionTypeError
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, LOG_OVERHEAD
from tidelog.records.compression import Bytes, Codec, compress
from tidelog.records.records import Record

_ENTRY = Struct(">qi")
_UINT32 = Struct(">I")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

MIN_MESSAGE_BYTES = (LOG_OVERHEAD + 14, LOG_OVERHEAD + 22)
"""The smallest size of a message with magic 0 and 1, including the offset and size fields."""


class MessagePlace(NamedTuple):
    """A message's position in its message set, and the fields before the message itself."""

    offset: int
    """The stored offset, which is absolute in v0, and relative inside a v1 wrapper."""
    position: int
    end: int
    magic: int
    attributes: int


class Message(NamedTuple):
    """A message's own fields. The timestamp of a v0 message is -1."""

    timestamp: int
    key: bytes | None
    value: bytes | None


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
    """Return one message, preceded by its offset and size. `codec` only sets the attribute; `value` is stored unchanged.

    For v0 the timestamp is dropped. Raises InvalidArgumentError for a magic other than 0 and 1, and for a negative timestamp.
    """
    if magic not in (0, 1):
        raise InvalidArgumentError("a legacy message has magic 0 or 1", found=magic)
    if timestamp < NO_TIMESTAMP:
        raise InvalidArgumentError("a record has a negative timestamp", found=timestamp)
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"message format v{magic} does not support zstd")
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
    """Build a message set with one message per record. With a codec, the set is compressed into a single wrapper message.

    Raises InvalidArgumentError for offsets that do not increase and for headers, which these formats lack.
    """
    previous = -1
    for record in records:
        if record.offset <= previous:
            raise InvalidArgumentError("an offset does not increase", found=record.offset, expected=f"more than {previous}")
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
        raise InvalidArgumentError("a compressed message needs at least one record")
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


def split_messages(data: Bytes) -> list[MessagePlace]:
    """Return the positions of the messages in a message set. Raises InvalidRecordError for an impossible size and for an
    incomplete message at the end.
    """
    places = []
    position = 0
    while position < len(data):
        if len(data) - position < MIN_MESSAGE_BYTES[0]:
            raise InvalidRecordError(
                f"the message at byte {position} of the message set is truncated", found=f"{len(data) - position} bytes"
            )
        offset, size = _ENTRY.unpack_from(data, position)
        end = position + LOG_OVERHEAD + size
        if size < MIN_MESSAGE_BYTES[0] - LOG_OVERHEAD or end > len(data):
            raise InvalidRecordError(
                f"the message at byte {position} of the message set has an invalid size",
                found=size,
                expected=f"14 to {len(data) - position - LOG_OVERHEAD}",
            )
        places.append(MessagePlace(offset, position, end, data[position + 16], data[position + 17]))
        position = end
    return places


def read_message(data: Bytes, magic: int, position: int, end: int) -> Message:
    """Return the fields of the message with `magic` 0 or 1 in `data[position:end]`. The checksum is not verified.

    Raises InvalidRecordError for a message that is shorter than its fields.
    """
    if end - position < MIN_MESSAGE_BYTES[magic]:
        raise InvalidRecordError(
            f"the message is too small for magic {magic}",
            found=end - position,
            expected=f"at least {MIN_MESSAGE_BYTES[magic]} bytes",
        )
    timestamp = _INT64.unpack_from(data, position + 18)[0] if magic == 1 else NO_TIMESTAMP
    key, at = _field(data, position + MIN_MESSAGE_BYTES[magic] - 8, end - 4, "key")
    value, _ = _field(data, at, end, "value")
    return Message(timestamp, key, value)


def has_right_crc(data: Bytes, place: MessagePlace) -> bool:
    """Whether a message's checksum matches its bytes."""
    (crc,) = _UINT32.unpack_from(data, place.position + LOG_OVERHEAD)
    return bool(zlib.crc32(memoryview(data)[place.position + 16 : place.end]) == crc)


def _field(data: Bytes, at: int, end: int, name: str) -> tuple[bytes | None, int]:
    """Return the key or value whose length field is at `at`, and the position after it, which may be at most `end`."""
    (length,) = _INT32.unpack_from(data, at)
    at += 4
    if length < 0:
        return None, at
    if length > end - at:
        raise InvalidRecordError(f"the {name} is longer than its message", found=length, expected=f"at most {end - at} bytes")
    return bytes(data[at : at + length]), at + length
