"""A log that the engine writes while builders index it, and scans of the same log.

`write_log` appends messages and passes each batch to the builders, as a broker does with its own index (`Append`). Its result
(`WrittenLog`) has the true data of each record, for brute-force comparisons. `WalkedLog` reads the folder again. It reads the
batches only once, so that thousands of look-ups are cheap; `walk` returns how many bytes of log a look-up would have read.
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
"""How often the engine's background work runs: it flushes rolled segments and writes recovery points."""


class Append(NamedTuple):
    """A batch as the log stored it. Times are in epoch ms, offsets are absolute."""

    segment: int
    """The base offset of its segment."""
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    timestamps: Int64s
    """The stored timestamp of each record: its CreateTime, or the append time."""
    append_ms: int
    """The broker's time at the append: what LogAppendTime would be."""
    is_indexed: bool
    """Whether the offset index got an entry for it."""

    @property
    def max_timestamp(self) -> int:
        return int(self.timestamps.max())


class IndexBuilder(Protocol):
    """An index that grows with the log."""

    def append(self, batch: Append) -> None:
        """Process a batch, which may be the first of a segment."""

    def close(self) -> None:
        """Finish the index at the end of the log."""


@dataclass(frozen=True)
class WrittenLog:
    """The written records one by one: the truth for comparing look-ups."""

    directory: Path
    """The partition's folder."""
    timestamps: Int64s
    append_ms: Int64s
    batches: int

    def first_at(self, timestamp: int, times: Int64s | None = None) -> int | None:
        """Return the first offset whose time is at least the given one, by examining every record."""
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
    """Write the messages of each part with the part's clock skew (ms), and pass each batch to the builders.

    `before_close` is called with the log while it is open: at that time its folder is in the state that a crash would leave.
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
    """A scan of one segment for the first record that reaches a time."""

    offset: int | None
    """The record; None if the scan reached the segment's end."""
    start_offset: int
    """The first offset that was read."""
    read_bytes: int
    """The bytes of the scanned batches, including the one with the record."""


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
        """Scan from the batch at `position` on until a record at or above `min_offset` reaches `timestamp`."""
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
        """Return where the batch with `offset` starts, by the offset index, and how many bytes of index and log that took.

        The scan from the index entry to that batch reads headers that a search for a time reads anyway. So it starts at the
        entry, and costs only the index bytes.
        """
        before = self.offset_index.bytes_read
        position = self.offset_index.lookup(offset).position
        return position, self.offset_index.bytes_read - before


class WalkedLog:
    """A log's segments, prepared for scans. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory)
        self.segments = [WalkedSegment(segment) for segment in self.log.segments]

    def __enter__(self) -> WalkedLog:
        return self

    def __exit__(self, *error: object) -> None:
        for segment in self.segments:
            segment.offset_index.close()
        self.log.close()
