"""A log that the engine writes while indexes are built beside it, and the same log walked.

`write_log` appends messages and tells each batch to builders, as a broker would tell its own index (`Append`). What it returns
(`WrittenLog`) keeps what is true of each record, for brute force. `WalkedLog` reads the folder again: its batches are looked at
once, so that thousands of look-ups can be counted; `walk` says how many bytes of log a look-up would have read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from studies.workload import EPOCH_MS, Int64s, Messages, append_messages
from tidelog.clock import ManualClock
from tidelog.config import PropertyValue
from tidelog.formats.offset_index import OffsetIndex
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.records.batch import BatchHeader
from tidelog.records.records import first_record_at
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

TOPIC = "studied"

TICK_BATCHES = 200
"""How often the engine's background work gets its turn: rolled segments are flushed, recovery points written."""


class Append(NamedTuple):
    """A batch as the log took it. Times in epoch ms, offsets absolute."""

    segment: int
    """The base offset of its segment."""
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    timestamps: Int64s
    """As stored, one for each record: CreateTimes, or the append time."""
    append_ms: int
    """The broker's time when it took the batch: what LogAppendTime would be."""
    is_indexed: bool
    """Whether the offset index got an entry for it."""

    @property
    def max_timestamp(self) -> int:
        return int(self.timestamps.max())


class IndexBuilder(Protocol):
    """An index that grows with the log."""

    def append(self, batch: Append) -> None:
        """Take note of a batch, the first of a segment or a later one."""

    def close(self) -> None:
        """The log ends here."""


@dataclass(frozen=True)
class WrittenLog:
    """What was written, record by record: the truth that look-ups are compared with."""

    directory: Path
    """The partition's folder."""
    timestamps: Int64s
    append_ms: Int64s
    batches: int

    def first_at(self, timestamp: int, times: Int64s | None = None) -> int | None:
        """Return the first offset whose time is at least that, by looking at every record."""
        reached = (self.timestamps if times is None else times) >= timestamp
        at = int(reached.argmax())
        return at if reached[at] else None


def write_log(
    folder: Path,
    parts: Sequence[tuple[Messages, int]],
    builders: Sequence[IndexBuilder] = (),
    *,
    properties: Mapping[str, PropertyValue] | None = None,
    batch_records: int = 4,
    before_close: Callable[[PartitionLog], object] | None = None,
) -> WrittenLog:
    """Write the messages of each part under the part's clock skew (ms), and tell the builders of each batch.

    `before_close` is called with the log while it is open: what its folder holds then is what a crash would leave.
    """
    clock = ManualClock(EPOCH_MS)
    with LogManager(folder, clock) as manager:
        manager.create_topic(TOPIC, 1, dict(properties or {}))
        log = manager.log(TOPIC, 0)
        stored: list[Int64s] = []
        appended: list[Int64s] = []
        batches = 0
        segment, entries = -1, 0
        for messages, skew_ms in parts:
            first = 0
            for info in append_messages(log, clock, messages, clock_skew_ms=skew_ms, batch_records=batch_records):
                some = messages.create_ms[first : first + batch_records]
                first += len(some)
                batches += 1
                if batches % TICK_BATCHES == 0:
                    manager.tick()
                times = some if info.log_append_time < 0 else np.full(len(some), info.log_append_time, np.int64)
                append_ms = clock.now_ms() if info.log_append_time < 0 else info.log_append_time
                stored.append(times)
                appended.append(np.full(len(some), append_ms, np.int64))
                active = log.segments.active
                if active.base_offset != segment:
                    segment, entries = active.base_offset, 0
                now_entries = active.offset_index.entries if builders else 0
                batch = Append(
                    segment,
                    active.log.size_bytes - info.size_bytes,
                    info.size_bytes,
                    info.first_offset,
                    info.last_offset,
                    times,
                    append_ms,
                    now_entries > entries,
                )
                entries = now_entries
                for builder in builders:
                    builder.append(batch)
        directory = log.directory
        for builder in builders:
            builder.close()
        if before_close is not None:
            before_close(log)
    return WrittenLog(directory, np.concatenate(stored), np.concatenate(appended), batches)


class Walk(NamedTuple):
    """A walk through one segment for the first record that reaches a time."""

    offset: int | None
    """The record; None if the segment's end came first."""
    start_offset: int
    """The first offset that was read."""
    read_bytes: int
    """Whole batches, the one with the record included."""


class WalkedSegment:
    """The batches of one segment as columns, and its offset index."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.base_offset = segment.base_offset
        self.headers: list[BatchHeader] = list(segment.headers())
        self.size_bytes = segment.end_position
        self.end_offset = segment.next_offset
        self.positions = np.array([header.position for header in self.headers], np.int64)
        self.last_offsets = np.array([header.last_offset for header in self.headers], np.int64)
        self.max_timestamps = np.array([header.max_timestamp for header in self.headers], np.int64)
        self.offset_index = OffsetIndex.open(segment.index_path(".index"), segment.base_offset)

    def walk(self, position: int, timestamp: int, min_offset: int = 0) -> Walk:
        """Walk from the batch at `position` on until a record at or above `min_offset` reaches `timestamp`."""
        first = int(np.searchsorted(self.positions, position))
        start_offset = self.headers[first].base_offset if first < len(self.headers) else self.end_offset
        reached = (self.max_timestamps[first:] >= timestamp) & (self.last_offsets[first:] >= min_offset)
        for number in np.flatnonzero(reached):
            header = self.headers[first + int(number)]
            found = first_record_at(header, self.segment.read_batch(header), timestamp, min_offset)
            if found is not None:
                return Walk(found[0], start_offset, header.end_position - position)
        return Walk(None, start_offset, self.size_bytes - position)

    def position_of(self, offset: int) -> tuple[int, int]:
        """Return where the batch with `offset` starts, by the offset index; and how many bytes of index and log that took.

        The walk from the index entry to that batch reads headers of batches that a search for a time looks at anyway; so it
        begins at the entry, and costs nothing but the index.
        """
        before = self.offset_index.bytes_read
        position = self.offset_index.lookup(offset).position
        return position, self.offset_index.bytes_read - before


class WalkedLog:
    """A log's segments, walked. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory)
        self.segments = [WalkedSegment(segment) for segment in self.log.segments]

    def __enter__(self) -> WalkedLog:
        return self

    def __exit__(self, *error: object) -> None:
        for segment in self.segments:
            segment.offset_index.close()
        self.log.close()
