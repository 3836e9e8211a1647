"""Changes a batch in place, in its buffer, for a leader or a producer.

    field                         under the checksum   consequence
    base offset, leader epoch     no (v2)              a change costs a few stores
    max timestamp and its type    yes                  the checksum is recomputed
    producer and its sequence     yes                  the same

The base timestamp is never changed: in a LogAppendTime batch, base timestamp + delta is still the producer's time. v0 batches
have no timestamp, and v0 and v1 batches have no leader epoch (spec §10).
"""

from __future__ import annotations

import zlib
from struct import Struct

from tidelog.errors import InvalidArgumentError, UnsupportedForMessageFormatError
from tidelog.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP_TYPE,
    TRANSACTIONAL_BIT,
    read_header,
)
from tidelog.records.kernel import crc32c

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_PRODUCER = Struct(">qhi")

_KNOWN_BITS = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT  # All bits but that of the timestamp type.

Writable = bytearray | memoryview


def set_base_offset_and_epoch(buffer: Writable, base_offset: int, leader_epoch: int, index: int = 0) -> None:
    """Write the base offset and the leader epoch into the v2 batch at `buffer[index:]`."""
    _INT64.pack_into(buffer, index, base_offset)
    set_leader_epoch(buffer, leader_epoch, index)


def set_leader_epoch(buffer: Writable, leader_epoch: int, index: int = 0) -> None:
    """Write the leader epoch into the batch at `buffer[index:]`. Raises UnsupportedForMessageFormatError for v0 and v1, which
    have no leader epoch.
    """
    if buffer[index + 16] < 2:
        raise UnsupportedForMessageFormatError(f"message format v{buffer[index + 16]} has no leader epoch")
    _INT32.pack_into(buffer, index + 12, leader_epoch)


def set_max_timestamp(buffer: Writable, timestamp_type: int, max_timestamp: int, index: int = 0) -> None:
    """Write the largest timestamp (ms) and its type (0 CreateTime, 1 LogAppendTime). If this changes anything, also write the new
    checksum.

    Raises UnsupportedForMessageFormatError for v0, InvalidArgumentError for an unknown type.
    """
    if timestamp_type == NO_TIMESTAMP_TYPE:
        raise InvalidArgumentError("a batch needs a timestamp type", found=timestamp_type, expected="0 or 1")
    header = read_header(buffer, index)
    if header.magic == 0:
        raise UnsupportedForMessageFormatError("message format v0 has no timestamp")
    if header.timestamp_type == timestamp_type and header.max_timestamp == max_timestamp:
        return
    # Unassigned bits are cleared, as in Kafka.
    attributes = header.attributes & (_KNOWN_BITS if header.magic == 2 else CODEC_MASK)
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    view = memoryview(buffer)[index : index + header.size]
    if header.magic == 2:
        _INT16.pack_into(view, 21, attributes)
        _INT64.pack_into(view, 35, max_timestamp)
        _UINT32.pack_into(view, 17, crc32c(view[21:]))
    else:
        view[17] = attributes
        _INT64.pack_into(view, 18, max_timestamp)
        _UINT32.pack_into(view, 12, zlib.crc32(view[16:]))


def set_producer(
    buffer: Writable, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool, index: int = 0
) -> None:
    """Write the producer fields (all -1 for no producer) and the new checksum into the v2 batch at `buffer[index:]`.

    Raises UnsupportedForMessageFormatError for v0 and v1, which have no producers.
    """
    header = read_header(buffer, index)
    if header.magic < 2:
        raise UnsupportedForMessageFormatError(f"message format v{header.magic} has no producers")
    attributes = header.attributes & ~TRANSACTIONAL_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    view = memoryview(buffer)[index : index + header.size]
    _INT16.pack_into(view, 21, attributes)
    _PRODUCER.pack_into(view, 43, producer_id, producer_epoch, base_sequence)
    _UINT32.pack_into(view, 17, crc32c(view[21:]))
