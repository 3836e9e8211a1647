"""The header of a record batch: the unit in which a log is written, checked, indexed and walked.

In every message format, a batch starts with the same four fields. A walker needs only these to go from batch to batch (spec
§10)::

    offset  size  field
    0       8     base offset (v2) or offset of the message or wrapper (v0, v1)
    8       4     length: bytes that follow this field (batch size - 12)
    12      4     partition leader epoch (v2) or CRC-32 (v0, v1)
    16      1     magic: 0, 1 or 2

    v2, 61 bytes                            v0 and v1: a message, alone or wrapping a compressed set
    17  4  CRC-32C over bytes 21..end       12  4  CRC-32 over bytes 16..end
    21  2  attributes                       17  1  attributes: bits 0-2 codec, bit 3 timestamp type (v1)
    23  4  last offset delta                18  8  timestamp (v1 only)
    27  8  base timestamp
    35  8  max timestamp                    attributes of v2: bits 0-2 codec, bit 3 timestamp type,
    43  8  producer id                      bit 4 transactional, bit 5 control, bit 6 base timestamp is a
    51  2  producer epoch                   delete horizon
    53  4  base sequence
    57  4  record count

The checksum of v2 covers neither the base offset nor the leader epoch, because the leader assigns both in place.

These are pure functions of bytes, which any layer above `records/` may call.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

from tidelog.errors import CorruptBatchError
from tidelog.model import MAX_OFFSET, NO_TIMESTAMP
from tidelog.records.compression import Bytes, Codec
from tidelog.records.kernel import crc32c

PathLike: TypeAlias = str | os.PathLike[str] | None

LOG_OVERHEAD = 12
"""The bytes that the length field does not count: the base offset and the length field itself."""

HEADER_BYTES = 61
"""The size of a v2 batch header, which is also the size of the smallest v2 batch."""

MIN_HEADER_BYTES = 18
"""The smallest number of bytes in which a walker recognizes a batch (spec §4.15)."""

MIN_LENGTH = 14
"""The smallest valid value of the length field, which an empty v0 message has."""

MIN_SIZE_BYTES = (LOG_OVERHEAD + 14, LOG_OVERHEAD + 22, HEADER_BYTES)
"""The smallest size of a batch with magic 0, 1 and 2."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_CODECS = tuple(Codec)

_MIN_LENGTH_V2 = HEADER_BYTES - LOG_OVERHEAD

_PREFIX = Struct(">qiIbb")
_LENGTH = Struct(">i")
_TIMESTAMP = Struct(">q")
_V2 = Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """A batch's header. Offsets and timestamps (ms) are absolute; -1 means none."""

    position: int
    """The byte position of the batch in its file."""
    size: int
    """The size in bytes of the whole batch, including the header."""
    base_offset: int
    last_offset: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    """v2: the first record's timestamp, or the delete horizon (bit 6). v0, v1: the same as `max_timestamp`."""
    max_timestamp: int
    """v2: the largest timestamp of the records, or the append time. v1: the message's or wrapper's timestamp. v0: -1."""
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    """v2: the number of records in the batch; after a compaction, fewer than its offsets. v0, v1: -1, because the header lacks a
    count.
    """

    @property
    def end_position(self) -> int:
        """The position of the byte after the batch."""
        return self.position + self.size

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        """The codec of the records. Raises CorruptBatchError for an unknown codec id."""
        codec_id = self.attributes & CODEC_MASK
        if codec_id > Codec.ZSTD:
            raise CorruptBatchError(
                "the attributes of a batch have an unknown codec", position=self.position, found=codec_id, expected="0 to 4"
            )
        return _CODECS[codec_id]

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> int:
        """The id of Kafka's TimestampType: -1 none (v0), 0 CreateTime, 1 LogAppendTime."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (v2)."""
        return self.magic >= 2 and self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, such as transaction markers (v2)."""
        return self.magic >= 2 and self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which the cleaner may drop the batch's tombstones."""
        return self.magic >= 2 and self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (epoch ms) from which the cleaner may drop the batch's tombstones; None if the batch has no delete horizon
        (KIP-534).
        """
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 if there is no base sequence. Sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


def _read_header_fast(buffer: Bytes, index: int, position: int) -> BatchHeader | None:
    """Parse a v2 header of 61 bytes, as `read_header` does. Return None if it is not a v2 header or breaks a rule. The caller
    then calls `read_header`.
    """
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _V2.unpack_from(buffer, index)
    last_offset = base_offset + last_offset_delta
    if magic != 2 or length < _MIN_LENGTH_V2 or base_offset < 0 or last_offset_delta < 0 or last_offset > MAX_OFFSET:
        return None
    return tuple.__new__(
        BatchHeader,
        (
            position,
            length + LOG_OVERHEAD,
            base_offset,
            last_offset,
            2,
            crc,
            attributes,
            base_timestamp,
            max_timestamp,
            leader_epoch,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ),
    )


def read_header(buffer: Bytes, index: int = 0, position: int = 0, path: PathLike = None) -> BatchHeader:
    """Parse and return the header at `buffer[index:]`, of the batch at file position `position`.

    The buffer may end after the header. Raises CorruptBatchError if the fields contradict the format or the header is incomplete.
    The checksum is not verified (see `check_crc`).
    """
    available = len(buffer) - index
    if available < MIN_HEADER_BYTES:
        raise CorruptBatchError("the batch header is truncated", path=path, position=position, found=f"{available} bytes")
    base_offset, length, crc, magic, attributes = _PREFIX.unpack_from(buffer, index)
    if length < MIN_LENGTH:
        raise CorruptBatchError(
            "the batch length is too small", path=path, position=position, found=length, expected="at least 14"
        )
    if magic < 0 or magic > 2:
        raise CorruptBatchError("a batch has an unknown magic", path=path, position=position, found=magic, expected="0, 1 or 2")
    size = length + LOG_OVERHEAD
    if size < MIN_SIZE_BYTES[magic]:
        raise CorruptBatchError(
            f"the batch is too small for magic {magic}",
            path=path,
            position=position,
            found=size,
            expected=f"at least {MIN_SIZE_BYTES[magic]} bytes",
        )
    if base_offset < 0:
        raise CorruptBatchError("a batch has a negative offset", path=path, position=position, found=base_offset)
    if magic == 2:
        if available < HEADER_BYTES:
            raise CorruptBatchError("the batch header is truncated", path=path, position=position, found=f"{available} bytes")
        header = _read_header_fast(buffer, index, position)
        if header is None:
            (delta,) = _LENGTH.unpack_from(buffer, index + 23)
            raise CorruptBatchError(
                "the last offset of a batch is out of range", path=path, position=position, found=f"delta {delta}"
            )
        return header
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if available < MIN_HEADER_BYTES + 8:
            raise CorruptBatchError("the batch header is truncated", path=path, position=position, found=f"{available} bytes")
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, index + 18)
    return tuple.__new__(
        BatchHeader,
        (position, size, base_offset, base_offset, magic, crc, attributes & 0xFF, timestamp, timestamp, -1, -1, -1, -1, -1),
    )


def iter_headers(buffer: Bytes, position: int = 0, path: PathLike = None) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in `buffer`, whose first byte is at file position `position`.

    A partial batch at the end is not an error: the walk stops before it, as Kafka's does (spec §4.15).
    Raises CorruptBatchError.
    """
    index = 0
    end = len(buffer)
    while end - index >= MIN_HEADER_BYTES:
        header = _read_header_fast(buffer, index, position + index) if end - index >= HEADER_BYTES else None
        if header is None:
            (length,) = _LENGTH.unpack_from(buffer, index + 8)
            if length >= MIN_LENGTH and length + LOG_OVERHEAD > end - index:
                return
            header = read_header(buffer, index, position + index, path)
        size = header.size
        if size > end - index:
            return
        yield header
        index += size


def compute_crc(magic: int, batch: Bytes) -> int:
    """Return the checksum that `batch` (exactly one batch's bytes) should have: CRC-32C for v2, CRC-32 for v0 and v1."""
    view = memoryview(batch)
    return crc32c(view[21:]) if magic == 2 else zlib.crc32(view[16:])


def check_crc(header: BatchHeader, batch: Bytes, path: PathLike = None) -> None:
    """Raise CorruptBatchError unless `batch` (exactly one batch's bytes) has the length and checksum in `header`."""
    size = len(batch)
    if size != header.size:
        raise CorruptBatchError(
            "the batch is truncated", path=path, position=header.position, found=f"{size} bytes", expected=header.size
        )
    crc = compute_crc(header.magic, batch)
    if crc != header.crc:
        raise CorruptBatchError(
            "the batch checksum does not match",
            path=path,
            position=header.position,
            found=f"{crc:#010x}",
            expected=f"{header.crc:#010x}",
        )


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` records after `sequence`. 0 follows 2^31 - 1."""
    return (sequence + by) & 0x7FFFFFFF


def decrement_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` records before `sequence`. 2^31 - 1 precedes 0."""
    return (sequence - by) & 0x7FFFFFFF
