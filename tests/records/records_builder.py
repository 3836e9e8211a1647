"""Collects records one by one, of any message format, and knows when it is full: what a producer's buffer does.

    largest timestamp reported for         its shallow offset
    LogAppendTime                          last offset; base offset for uncompressed v0, v1
    CreateTime, v2 or compressed           last offset
    CreateTime, v1 uncompressed            offset of the first record that carries the largest timestamp
    no timestamps at all                   -1

The shallow offset is the one that a time index entry gets: that of the batch, and in uncompressed v0 and v1 each record is a
batch (spec §11).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, HEADER_BYTES, LOG_APPEND_TIME, LOG_OVERHEAD
from tidelog.records.builder import MAX_OFFSET_DELTA, NO_PRODUCER, Producer, build_batch_v2, encode_headers, encode_varint
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

COMPRESSION_RATE_ESTIMATION_FACTOR = 1.05
"""Kafka's margin on an estimated compression ratio."""


class BuiltRecords(NamedTuple):
    """Finished bytes, and the largest timestamp (ms, -1 for none) with the offset that a time index entry would name."""

    data: bytearray
    max_timestamp: int
    shallow_offset_of_max_timestamp: int


class RecordsBuilder:
    """Appends records with growing offsets; `build` returns them as one v2 batch or as a message set.

    `write_limit_bytes` is a soft limit: the first record always fits. With a codec, fullness is judged by `compression_ratio`,
    the caller's estimate of compressed to uncompressed bytes.
    """

    def __init__(
        self,
        magic: int = 2,
        *,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp_type: int = CREATE_TIME,
        append_time: int = NO_TIMESTAMP,
        write_limit_bytes: int | None = None,
        compression_ratio: float = 1.0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer: Producer = NO_PRODUCER,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if magic not in (0, 1, 2):
            raise InvalidArgumentError("unknown magic", found=magic, expected="0, 1 or 2")
        if codec is Codec.ZSTD and magic < 2:
            raise UnsupportedCompressionTypeError(f"message format v{magic} does not support zstd")
        if magic < 2 and (is_transactional or is_control or producer != NO_PRODUCER or delete_horizon_ms is not None):
            raise InvalidArgumentError(f"message format v{magic} has no producers, control records and delete horizons")
        self.magic = magic
        self.base_offset = base_offset
        self.codec = codec
        self.level = level
        self.timestamp_type = timestamp_type
        self.append_time = append_time
        self.write_limit_bytes = write_limit_bytes
        self.compression_ratio = compression_ratio
        self.leader_epoch = leader_epoch
        self.producer = producer
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.delete_horizon_ms = delete_horizon_ms
        self.records: list[Record] = []
        self._uncompressed_bytes = 0

    @property
    def next_offset(self) -> int:
        """The offset that `append` gives to the next record."""
        return self.records[-1].offset + 1 if self.records else self.base_offset

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
    ) -> int:
        """Append a record at the next offset, and return that."""
        offset = self.next_offset
        self.append_with_offset(offset, timestamp, key, value, headers)
        return offset

    def append_with_offset(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Append a record at `offset`, which must be greater than the last one's; nothing is appended where that raises.

        Raises InvalidArgumentError, also for a negative timestamp and for headers before v2.
        """
        if offset < self.next_offset:
            raise InvalidArgumentError("offset does not increase", found=offset, expected=f"at least {self.next_offset}")
        if offset - self.base_offset > MAX_OFFSET_DELTA:
            raise InvalidArgumentError("offset too far from the base offset", found=offset, expected="less than 2^31 away")
        if timestamp < NO_TIMESTAMP:
            raise InvalidArgumentError("negative timestamp", found=timestamp)
        if headers and self.magic < 2:
            raise InvalidArgumentError(f"message format v{self.magic} has no headers", found=f"offset {offset}")
        self._uncompressed_bytes += self._size(offset, timestamp, key, value, headers)
        self.records.append(Record(offset, timestamp, self.timestamp_type, key, value, tuple(headers)))

    def _size(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
    ) -> int:
        key_bytes, value_bytes = len(key or b""), len(value or b"")
        if self.magic < 2:
            return LOG_OVERHEAD + (14 if self.magic == 0 else 22) + key_bytes + value_bytes
        base_timestamp = self.delete_horizon_ms
        if base_timestamp is None:
            base_timestamp = self.records[0].timestamp if self.records else timestamp
        body = 1 + len(encode_varint(timestamp - base_timestamp)) + len(encode_varint(offset - self.base_offset))
        body += len(encode_varint(-1 if key is None else key_bytes)) + key_bytes
        body += len(encode_varint(-1 if value is None else value_bytes)) + value_bytes
        body += len(encode_headers(headers))
        return len(encode_varint(body)) + body

    @property
    def estimated_bytes(self) -> int:
        """Size that the built records would have by now, as far as can be known before compressing."""
        header = HEADER_BYTES if self.magic == 2 else 0
        if self.codec is Codec.NONE:
            return header + self._uncompressed_bytes
        return header + int(self._uncompressed_bytes * self.compression_ratio * COMPRESSION_RATE_ESTIMATION_FACTOR)

    @property
    def is_full(self) -> bool:
        return bool(self.records) and self.write_limit_bytes is not None and self.write_limit_bytes <= self.estimated_bytes

    def has_room_for(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
    ) -> bool:
        """Whether one more record stays within the limit; its own compression is not counted on."""
        if not self.records or self.write_limit_bytes is None:
            return True
        size = self._size(self.next_offset, timestamp, key, value, headers)
        return not self.is_full and self.write_limit_bytes >= self.estimated_bytes + size

    def build(self) -> BuiltRecords:
        """Return what was appended; no bytes at all where that is nothing."""
        if not self.records:
            return BuiltRecords(bytearray(), NO_TIMESTAMP, -1)
        if self.magic == 2:
            data = build_batch_v2(
                self.records,
                base_offset=self.base_offset,
                codec=self.codec,
                level=self.level,
                timestamp_type=self.timestamp_type,
                append_time=self.append_time,
                leader_epoch=self.leader_epoch,
                producer=self.producer,
                is_transactional=self.is_transactional,
                is_control=self.is_control,
                delete_horizon_ms=self.delete_horizon_ms,
            )
        else:
            data = build_message_set(
                self.records,
                self.magic,
                codec=self.codec,
                level=self.level,
                timestamp_type=self.timestamp_type,
                append_time=self.append_time,
            )
        return BuiltRecords(data, *self._largest_timestamp())

    def _largest_timestamp(self) -> tuple[int, int]:
        first, last = self.records[0].offset, self.records[-1].offset
        is_one_batch = self.magic == 2 or self.codec is not Codec.NONE
        if self.timestamp_type == LOG_APPEND_TIME:
            return self.append_time, last if is_one_batch else first
        largest = NO_TIMESTAMP if self.magic == 0 else max(record.timestamp for record in self.records)
        if largest == NO_TIMESTAMP:
            return NO_TIMESTAMP, -1
        if is_one_batch:
            return largest, last
        return largest, next(record.offset for record in self.records if record.timestamp == largest)
