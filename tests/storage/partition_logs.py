"""Logs in an empty folder, records to put into them, and what is in them then."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path

from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats.names import file_name
from tidelog.formats.offset_index import OffsetIndex, OffsetPosition
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.records.batch import CREATE_TIME, BatchHeader, iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.append.append_info import AppendInfo
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment

NOW_MS = 1_700_000_000_000
TOPIC_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")


def has_overflow(segment: LogSegment) -> bool:
    """Whether a segment's last offset cannot be expressed relative to its base (spec §4.14): such a segment must be split."""
    next_offset = segment.read_next_offset()
    return next_offset > segment.base_offset and not segment.can_convert_to_relative_offset(next_offset - 1)


def open_log(
    directory: Path,
    clock: ManualClock | None = None,
    *,
    topic_id: uuid.UUID | None = TOPIC_ID,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    jitter: random.Random | None = None,
    **properties: int | str | bool,
) -> PartitionLog:
    """Open `directory`/log-0, made if it is missing; `properties` are a topic's, with `_` for `.`."""
    folder = directory / "log-0"
    folder.mkdir(exist_ok=True)
    clock = clock or ManualClock(NOW_MS)
    return load(
        folder,
        config(**properties),
        clock,
        Scheduler(clock),
        had_clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        topic_id=topic_id,
        jitter=jitter,
    )


def config(**properties: int | str | bool) -> LogConfig:
    return LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})


# --- records


def batch(
    offset: int = 0,
    timestamp: int = NOW_MS,
    count: int = 1,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    codec: Codec = Codec.NONE,
    leader_epoch: int = 0,
    producer: Producer = NO_PRODUCER,
    transactional: bool = False,
) -> bytearray:
    """Records of consecutive offsets, all with `timestamp`, as one v2 batch."""
    records = [Record(offset + i, timestamp, CREATE_TIME, key, value) for i in range(count)]
    return build_batch_v2(records, codec=codec, leader_epoch=leader_epoch, producer=producer, is_transactional=transactional)


def timed(timestamps: Sequence[int], offset: int = 0, leader_epoch: int = 0) -> bytearray:
    """One v2 batch with these timestamps."""
    records = [Record(offset + i, timestamp, CREATE_TIME, b"key", b"value") for i, timestamp in enumerate(timestamps)]
    return build_batch_v2(records, leader_epoch=leader_epoch)


def messages(offset: int = 0, timestamp: int = NOW_MS, count: int = 1, *, magic: int = 1, codec: Codec = Codec.NONE) -> bytearray:
    """The same as a set of format v0 or v1."""
    records = [Record(offset + i, timestamp, CREATE_TIME, b"key", b"value") for i in range(count)]
    return build_message_set(records, magic=magic, codec=codec)


def marker(kind: ControlType, producer_id: int, epoch: int = 0, *, offset: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The end of a transaction."""
    producer = Producer(producer_id, epoch, -1)
    return build_end_txn_marker(offset, NOW_MS, kind, producer, coordinator_epoch=coordinator_epoch, leader_epoch=0)


def end_txn(
    log: PartitionLog, kind: ControlType, producer_id: int, epoch: int = 0, coordinator_epoch: int = 0, leader_epoch: int = 0
) -> AppendInfo:
    """Have the coordinator end a transaction."""
    data = marker(kind, producer_id, epoch, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(data, leader_epoch, origin=AppendOrigin.COORDINATOR)


# --- what is in a log


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [header for segment in log.segments for header in segment.batches()]


def records(log: PartitionLog) -> list[Record]:
    """Every record at or above the log start, by reads like a follower's."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, FetchIsolation.LOG_END).data
        if not len(data):
            break
        for header in iter_headers(data):
            found += [
                record for record in iter_records(header, data[header.position : header.end_position]) if record.offset >= offset
            ]
            offset = header.next_offset
    return found


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in records(log)]


def bases(log: PartitionLog) -> list[int]:
    return log.segments.base_offsets


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def offset_entries(directory: Path, base: int) -> list[OffsetPosition]:
    index = OffsetIndex.from_bytes(base, (directory / file_name(base, ".index")).read_bytes())
    return [index.entry(n) for n in range(index.entries)]


def time_entries(directory: Path, base: int) -> list[TimestampOffset]:
    index = TimeIndex.from_bytes(base, (directory / file_name(base, ".timeindex")).read_bytes())
    return [index.entry(n) for n in range(index.entries)]


def fetch(
    log: PartitionLog, offset: int, isolation: FetchIsolation = FetchIsolation.LOG_END, max_length: int = 2**20
) -> list[int]:
    """Offsets of the records in a read, from `offset` on."""
    data = log.read(offset, max_length, isolation).data
    found = []
    for header in iter_headers(data):
        found += [record.offset for record in iter_records(header, data[header.position : header.end_position])]
    return [one for one in found if one >= offset]
