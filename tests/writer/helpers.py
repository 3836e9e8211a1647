"""Small logs for the tests of this room."""

from __future__ import annotations

import uuid
from pathlib import Path

from tidelog.clock import Clock, ManualClock
from tidelog.config import LogConfig
from tidelog.log.offset_index import OffsetIndex, OffsetPosition
from tidelog.log.partition_writer import PartitionWriter
from tidelog.log.time_index import TimeIndex, TimestampOffset
from tidelog.records.batch import CREATE_TIME, BatchHeader, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record, iter_records

TOPIC_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")


def batch(offset: int, timestamp: int, count: int = 1, value: bytes | None = b"value") -> bytearray:
    """Records of consecutive offsets and timestamps, as one batch."""
    return build_batch_v2([Record(offset + i, timestamp + i, CREATE_TIME, b"key", value) for i in range(count)], leader_epoch=0)


def writer(directory: Path, clock: Clock | None = None, **properties: int) -> PartitionWriter:
    config = LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})
    return PartitionWriter(directory, config, clock or ManualClock(0), topic_id=TOPIC_ID)


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def headers(directory: Path) -> list[BatchHeader]:
    return [header for base in bases(directory) for header in iter_headers((directory / f"{base:020d}.log").read_bytes())]


def records(directory: Path) -> list[Record]:
    found = []
    for base in bases(directory):
        data = memoryview((directory / f"{base:020d}.log").read_bytes())
        for header in iter_headers(data):
            found += iter_records(header, data[header.position : header.end_position])
    return found


def offset_entries(directory: Path, base: int) -> list[OffsetPosition]:
    index = OffsetIndex.from_bytes(base, (directory / f"{base:020d}.index").read_bytes())
    return [index.entry(n) for n in range(index.entries)]


def time_entries(directory: Path, base: int) -> list[TimestampOffset]:
    index = TimeIndex.from_bytes(base, (directory / f"{base:020d}.timeindex").read_bytes())
    return [index.entry(n) for n in range(index.entries)]
