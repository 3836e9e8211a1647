"""What a folder's logs hold, by reading each `.log` from its first byte to its last: no index, no map, no name is used.

A folder must be sound where this is asked. What lies below the log start does not count, and control records are listed apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.model import TopicPartition
from tidelog.records.batch import check_crc, iter_headers
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records


class Row(NamedTuple):
    """One record, control records among them; `timestamp` in ms, -1 none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    is_control: bool
    is_transactional: bool
    producer_id: int
    control: ControlType | None


class SegmentTruth(NamedTuple):
    base_offset: int
    next_offset: int
    """Behind its last batch; the base of an empty one."""
    largest_timestamp: int
    """Of its batches' headers, -1 none."""
    batches: int


class PartitionTruth(NamedTuple):
    key: TopicPartition
    log_start: int
    end: int
    rows: list[Row]
    """At and above the log start."""
    segments: list[SegmentTruth]
    is_v0: bool
    """The last batch has no timestamps: then Kafka refuses to look for a time."""

    def find(self, timestamp: int) -> tuple[int, int] | None:
        return next(((row.offset, row.timestamp) for row in self.rows if row.timestamp >= timestamp), None)

    def find_max(self) -> tuple[int, int] | None:
        largest = max((row.timestamp for row in self.rows), default=-1)
        return None if largest < 0 else self.find(largest)

    def data(self, start: int | None = None, end: int | None = None, *, is_committed: bool = False) -> list[Row]:
        """Return what a range of time holds (ms, end exclusive); without bounds, records without a timestamp, too."""
        stable, aborted = self._transactions() if is_committed else (self.end, set())
        return [
            row
            for row in self.rows
            if not row.is_control
            and row.offset < stable
            and row.offset not in aborted
            and (start is None or row.timestamp >= start)
            and (end is None or row.timestamp < end)
            and (row.timestamp >= 0 or (start is None and end is None))
        ]

    def _transactions(self) -> tuple[int, set[int]]:
        """Return the last stable offset of a log whose high watermark is its end, and the offsets of aborted records."""
        open_offsets: dict[int, list[int]] = {}
        aborted: set[int] = set()
        for row in self.rows:
            if row.control in (ControlType.ABORT, ControlType.COMMIT):
                ended = open_offsets.pop(row.producer_id, [])
                aborted.update(ended if row.control is ControlType.ABORT else [])
            elif row.is_transactional:
                open_offsets.setdefault(row.producer_id, []).append(row.offset)
        return min((offsets[0] for offsets in open_offsets.values()), default=self.end), aborted


def read_partition(directory: Path, key: TopicPartition, log_start: int) -> PartitionTruth:
    rows: list[Row] = []
    segments: list[SegmentTruth] = []
    is_v0 = False
    end = log_start
    for log in sorted(directory.glob(f"*{names.LOG_SUFFIX}")):
        data, base = log.read_bytes(), int(log.stem)
        next_offset, largest, batches = base, -1, 0
        for header in iter_headers(data):
            batch = memoryview(data)[header.position : header.end_position]
            check_crc(header, batch)
            for record in iter_records(header, batch):
                control = parse_control_type(record.key) if header.is_control else None
                rows.append(
                    Row(
                        record.offset,
                        record.timestamp,
                        None if record.key is None else bytes(record.key),
                        None if record.value is None else bytes(record.value),
                        header.is_control,
                        header.is_transactional,
                        header.producer_id,
                        control,
                    )
                )
            next_offset, largest, batches = header.next_offset, max(largest, header.max_timestamp), batches + 1
            is_v0 = header.magic == 0
        segments.append(SegmentTruth(base, next_offset, largest, batches))
        end = max(end, next_offset)
    start = max(log_start, segments[0].base_offset if segments else 0)
    return PartitionTruth(key, start, end, [row for row in rows if row.offset >= start], segments, is_v0)


def read_folder(path: Path, keys: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionTruth]:
    checkpoint = path / names.LOG_START_OFFSET_CHECKPOINT
    starts = read_offset_checkpoint(checkpoint) if checkpoint.exists() else {}
    return {key: read_partition(path / names.log_dir_name(*key), key, starts.get(key, 0)) for key in keys}
