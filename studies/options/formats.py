"""Encoders and decoders for the message formats that KIP-32 (draft 31) proposes.

    field            bytes   before   option 1   option 2   option 3
    Offset           8       x        x          x          x           the broker's; not covered by the checksum
    MessageSize      4       x        x          x          x           bytes of what follows
    Crc              4       x        x          x          x           CRC-32 from Magic on, as in v0 and v1
    Magic            1       0        1          1          1           1 for every option: reader and writer must agree on one
    Attributes       1       x        x          x          x           bits 0-2: codec
    CreateTime       8       -        x          -          x           the producer's, never changed
    LogAppendTime    8       -        x          x          -           the broker's; -1 from a producer
    KeyLength, Key   4 + n   x        x          x          x           length -1 is null
    ValueLength, Value

The draft lists the size before the offset. Here the offset comes first, as in Kafka's files, so that all formats have the same
field order. With another order a codec would produce other sizes, and the difference would exceed that of the timestamps.
"Before" is exactly v0, and option 3 is v1.

A compressed wrapper holds messages in its value, with offsets 0, 1, 2... (KIP-31), and carries the last one's offset, the
CreateTime of the *first* one and the *latest* LogAppendTime inside. A producer sends -1 as LogAppendTime everywhere; the broker
sets the wrapper's only (`assign`), which needs no recompression, and an inner -1 means the wrapper's time. Kafka never
wrote these formats: they exist here to be measured.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, InvalidArgumentError, InvalidRecordError
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CODEC_MASK
from tidelog.records.compression import Bytes, Codec, compress, decompress

_ENTRY = Struct(">qi")
_UINT32 = Struct(">I")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

ENTRY_BYTES = 12
"""The bytes of Offset and MessageSize."""

_TIMES_AT = ENTRY_BYTES + 6


class Option(enum.Enum):
    """The timestamps that a message carries. The value is the name in tables."""

    BEFORE = "before"
    BOTH = "option 1"
    APPEND_TIME = "option 2"
    CREATE_TIME = "option 3"

    @property
    def has_create_time(self) -> bool:
        return self in (Option.BOTH, Option.CREATE_TIME)

    @property
    def has_append_time(self) -> bool:
        return self in (Option.BOTH, Option.APPEND_TIME)

    @property
    def fixed_bytes(self) -> int:
        """The size of a message without key and value, in bytes."""
        return _TIMES_AT + 8 * (self.has_create_time + self.has_append_time) + 8


OPTIONS = (Option.BOTH, Option.APPEND_TIME, Option.CREATE_TIME)
"""The options of the draft."""


class Message(NamedTuple):
    """One message. Times are in epoch ms; -1 if the format has no such field or it was not set yet."""

    offset: int
    create_ms: int
    append_ms: int
    key: bytes | None
    value: bytes | None
    codec: Codec = Codec.NONE
    """The codec of a wrapper's value."""


def encode(option: Option, message: Message) -> bytes:
    """Encode a message. Times without a field in the format are dropped."""
    parts = [bytes((0 if option is Option.BEFORE else 1, message.codec))]
    if option.has_create_time:
        parts.append(_INT64.pack(message.create_ms))
    if option.has_append_time:
        parts.append(_INT64.pack(message.append_ms))
    for field in (message.key, message.value):
        parts.append(_INT32.pack(-1 if field is None else len(field)))
        if field is not None:
            parts.append(field)
    body = b"".join(parts)
    return _ENTRY.pack(message.offset, len(body) + 4) + _UINT32.pack(zlib.crc32(body)) + body


def encode_set(option: Option, messages: Sequence[Message], codec: Codec = Codec.NONE) -> bytes:
    """Return the concatenated messages, or with a codec one wrapper that contains them. Offsets must increase.

    Raise InvalidArgumentError for an empty wrapper.
    """
    if codec is Codec.NONE:
        return b"".join([encode(option, message) for message in messages])
    if not messages:
        raise InvalidArgumentError("a compressed message of no messages")
    first = messages[0].offset
    inside = b"".join([encode(option, message._replace(offset=message.offset - first)) for message in messages])
    append_ms = max(message.append_ms for message in messages)
    value = bytes(compress(codec, inside, magic=1))
    return encode(option, Message(messages[-1].offset, messages[0].create_ms, append_ms, None, value, codec))


def places(data: Bytes) -> Iterator[tuple[int, int]]:
    """Yield where each message of a set, wrapper or not, begins and ends. Raise InvalidRecordError for an incomplete one."""
    position = 0
    while position < len(data):
        if len(data) - position < ENTRY_BYTES:
            raise InvalidRecordError("message cut off", position=position, found=f"{len(data) - position} bytes")
        end = position + ENTRY_BYTES + _ENTRY.unpack_from(data, position)[1]
        if not position + Option.BEFORE.fixed_bytes <= end <= len(data):
            raise InvalidRecordError(
                "message size", position=position, found=end - position, expected=f"to {len(data) - position}"
            )
        yield position, end
        position = end


def decode_at(option: Option, data: Bytes, position: int, end: int) -> Message:
    """Return the message, or wrapper, at `data[position:end]`. Raise CorruptBatchError, InvalidRecordError."""
    (crc,) = _UINT32.unpack_from(data, position + ENTRY_BYTES)
    if zlib.crc32(memoryview(data)[position + ENTRY_BYTES + 4 : end]) != crc:
        raise CorruptBatchError("message checksum does not match", position=position)
    if end - position < option.fixed_bytes:
        raise InvalidRecordError("message too small", position=position, found=end - position, expected=option.fixed_bytes)
    at = position + _TIMES_AT
    create_ms = append_ms = NO_TIMESTAMP
    if option.has_create_time:
        create_ms, at = _INT64.unpack_from(data, at)[0], at + 8
    if option.has_append_time:
        append_ms, at = _INT64.unpack_from(data, at)[0], at + 8
    fields: list[bytes | None] = []
    for _ in range(2):
        if end - at < 4:
            raise InvalidRecordError("length cut off", position=position)
        (length,) = _INT32.unpack_from(data, at)
        at += 4
        if length > end - at:
            raise InvalidRecordError("key or value cut off", position=position, found=length, expected=f"at most {end - at}")
        fields.append(None if length < 0 else bytes(data[at : at + length]))
        at += max(length, 0)
    if at != end:
        raise InvalidRecordError("bytes behind the value", position=position, found=end - at)
    codec = Codec(data[position + ENTRY_BYTES + 5] & CODEC_MASK)
    return Message(_ENTRY.unpack_from(data, position)[0], create_ms, append_ms, fields[0], fields[1], codec)


def decode(option: Option, data: Bytes) -> Iterator[Message]:
    """Yield the messages of a set, including those inside wrappers, with absolute offsets and the times that a reader sees.

    Raises CorruptBatchError, InvalidRecordError, DecompressionError.
    """
    for position, end in places(data):
        message = decode_at(option, data, position, end)
        if message.codec is Codec.NONE:
            yield message
        else:
            yield from _unwrapped(option, message)


def _unwrapped(option: Option, wrapper: Message) -> Iterator[Message]:
    inside = decompress(wrapper.codec, wrapper.value or b"", magic=1)
    messages = [decode_at(option, inside, *place) for place in places(inside)]
    if not messages:
        raise InvalidRecordError("a compressed message of no messages")
    base = wrapper.offset - messages[-1].offset
    for message in messages:
        append_ms = wrapper.append_ms if message.append_ms == NO_TIMESTAMP else message.append_ms
        yield message._replace(offset=base + message.offset, append_ms=append_ms)


def assign(option: Option, data: bytearray, base_offset: int, append_ms: int) -> int:
    """Modify a produce request in place as a leader does: set offsets from `base_offset` on, and LogAppendTime if it has a field.

    Return the number of messages. A wrapper is decompressed only for counting; its inner bytes stay. With option 3 only the
    offset is written, so the checksum stays, too. Before KIP-31, offsets inside a wrapper were absolute. So the cost of `BEFORE`
    with compression is measured on the real v0 (`migration`), not here.
    """
    offset = base_offset
    time_at = _TIMES_AT + 8 * option.has_create_time
    for position, end in places(data):
        codec = data[position + ENTRY_BYTES + 5] & CODEC_MASK
        if codec:
            wrapper = decode_at(option, data, position, end)
            offset += sum(1 for _ in places(decompress(wrapper.codec, wrapper.value or b"", magic=1))) - 1
        _INT64.pack_into(data, position, offset)
        if option.has_append_time:
            _INT64.pack_into(data, position + time_at, append_ms)
            crc = zlib.crc32(memoryview(data)[position + ENTRY_BYTES + 4 : end])
            _UINT32.pack_into(data, position + ENTRY_BYTES, crc)
        offset += 1
    return offset - base_offset
