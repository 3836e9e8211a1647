"""The first checks of every append, batch by batch (spec §5.1, step 2).

| check | leader | follower | error |
|---|---|---|---|
| header: length, magic, offsets | yes | yes | CorruptBatchError |
| a client's v2 batch begins at offset 0, and does not end below it | origin CLIENT | - | InvalidRecordError |
| size ≤ max.message.bytes | yes | - (the leader accepted it) | RecordTooLargeError |
| checksum | yes | yes | CorruptBatchError |
| codec: a known one | yes | when it is read | DecompressionError |
| offsets grow from batch to batch | - (they are assigned) | yes | OffsetsOutOfOrderError |
| leader epoch ≤ the followed leader's epoch | - | this batch and all later ones are left out (KAFKA-18723) | - |

A partial batch at the end is left out, as in all of Tidelog (spec §4.15). The functions change nothing; `Appends` calls them.
"""

from __future__ import annotations

import logging

from crc32c import crc32c

from tidelog.errors import DecompressionError, InvalidRecordError, OffsetsOutOfOrderError, RecordTooLargeError
from tidelog.records.batch import CODEC_MASK, MIN_HEADER_BYTES, BatchHeader, check_crc, iter_headers
from tidelog.records.compression import Codec
from tidelog.records.validation import AppendOrigin

logger = logging.getLogger("tidelog.storage")

_CLIENT = AppendOrigin.CLIENT
_MAGIC = 16
_LAST_DELTA = 23
_SIGN = 0x80


def analyze_as_leader(records: memoryview, origin: AppendOrigin, max_message_bytes: int) -> list[BatchHeader]:
    """Return the headers of the whole batches in `records`. A header's `position` is the batch's index in `records`.

    Raises the errors of the table above.
    """
    if origin is _CLIENT and len(records) >= MIN_HEADER_BYTES and records[_MAGIC] == 2 and records[0] & _SIGN:
        raise InvalidRecordError("a producer's batch does not begin at offset 0", expected=0)
    if origin is _CLIENT and len(records) > _LAST_DELTA and records[_MAGIC] == 2 and records[_LAST_DELTA] & _SIGN:
        if len(records) > max_message_bytes:
            raise RecordTooLargeError("a batch is larger than max.message.bytes", expected=f"at most {max_message_bytes}")
        raise InvalidRecordError("the last offset of a producer's batch is below its first offset")
    headers = list(iter_headers(records))
    for header in headers:
        position, size = header.position, header.size
        is_v2 = header.magic == 2
        if is_v2 and header.base_offset != 0 and origin is _CLIENT:
            raise InvalidRecordError("a producer's batch does not begin at offset 0", found=header.base_offset, expected=0)
        if size > max_message_bytes:
            check_size(header, max_message_bytes)
        # The checksum of the usual batch is computed here; the slow way reports errors.
        if not is_v2 or crc32c(records[position + 21 : position + size]) != header.crc:
            check_crc(header, records[position : position + size])
        if header.attributes & CODEC_MASK > Codec.ZSTD:
            raise DecompressionError(
                "the batch has an unknown compression codec", position=position, found=header.attributes & CODEC_MASK
            )
    return headers


def analyze_as_follower(records: memoryview, leader_epoch: int | None) -> list[BatchHeader]:
    """Return the headers of the batches to append. If `leader_epoch` is None, batches of every epoch are accepted.

    A batch with an epoch above `leader_epoch` may be one that its leader is about to lose. That batch and all later ones are left
    out. Raises the errors of the table above.
    """
    headers: list[BatchHeader] = []
    last_offset = -1
    for header in iter_headers(records):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            logger.info(
                "dropping batches from offset %d on: their leader epoch, %d, is above the followed leader's epoch",
                header.base_offset,
                header.leader_epoch,
            )
            break
        if (header.base_offset if header.magic == 2 else header.last_offset) <= last_offset:
            raise OffsetsOutOfOrderError(
                "the offsets of a follower's batches are out of order",
                position=header.position,
                found=header.base_offset,
                expected=f"above {last_offset}",
            )
        check_crc(header, records[header.position : header.end_position])
        last_offset = header.last_offset
        headers.append(header)
    return headers


def check_size(header: BatchHeader, max_message_bytes: int) -> None:
    """Raise RecordTooLargeError for a batch above max.message.bytes."""
    if header.size > max_message_bytes:
        raise RecordTooLargeError(
            "a batch is larger than max.message.bytes", found=header.size, expected=f"at most {max_message_bytes}"
        )
