"""Look-ups with each design: the first record whose time is at least T.

| reader | starts reading the log | skips a segment |
|---|---|---|
| `TimeIndexReader` | at the last entry not later than T | if its last entry is earlier than T |
| `GranularReader` | at the last entry earlier than T, of all segments | by the first entry of the next segment |
| `MinuteMapReader` | at the smallest first offset of T's minute and all later ones | if it has no such minute |
| `NaiveMinuteMapReader` | at the first offset of T's minute, or of the next one in the map | the same |
| `WideReader` | at the last entry earlier than T | after a walk from its last entry to its end |
| `AppendTimeReader` | after the last entry earlier than T, which is the result: messages have no time | by its last entry |

`GranularReader` must take an entry *earlier* than T, not the closest one, because records of the same millisecond may lie before
the entry. It assumes that times never decrease. On other logs its results are wrong, which is counted here, too.

Index bytes are those of the entries that a bisection probes in the files; for the minute map, 12 bytes for each entry examined in
memory. Files are opened and the map is loaded beforehand: `starting` counts that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from studies.indexes.builders import (
    TIME_ENTRY,
    WIDE_ENTRY,
    AppendTimeIndex,
    GranularIndex,
    MinuteMap,
    WideOffsetIndex,
)
from studies.indexes.written_log import WalkedLog, WalkedSegment
from studies.workload import MINUTE_MS
from tidelog.formats.index_entries import IndexEntries
from tidelog.formats.names import file_name
from tidelog.formats.paths.file_path import local_path
from tidelog.formats.time_index import TimeIndex, TimestampOffset


class Answer(NamedTuple):
    """The result of a look-up, and what it read."""

    offset: int | None
    """None if no record is at or after that time."""
    start_offset: int | None
    """The offset at which it started reading the log."""
    index_bytes: int
    log_bytes: int


class WideEntries(IndexEntries):
    """Entries of the 16-byte offset index, read from a file."""

    entry_bytes = WIDE_ENTRY.size

    def entry_at(self, slot: int) -> tuple[int, int, int]:
        """Return (offset, position, timestamp) of an entry."""
        relative, position, timestamp = WIDE_ENTRY.unpack(self._raw(slot))
        return self.base_offset + relative, position, timestamp

    def slot_before(self, timestamp: int) -> int:
        """Return the last slot with a time earlier than the given one, -1 if there is none. Bisection fails if times decrease."""
        return bisect_left(range(self.entries), timestamp, key=lambda slot: int(self._unpack(WIDE_ENTRY, slot)[2])) - 1


class FileReader:
    """An open file of `kind` for each segment."""

    kind: type[IndexEntries]

    def __init__(self, log: WalkedLog, path_of: Callable[[WalkedSegment], Path]) -> None:
        self.log = log
        self.files = [self.kind.open(path_of(segment), segment.base_offset) for segment in log.segments]
        self.entries = sum(file.entries for file in self.files)
        self.entry_bytes = self.kind.entry_bytes

    def index_bytes_read(self) -> int:
        """Return how many bytes of the files were read."""
        return sum(file.bytes_read for file in self.files)

    def last_known(self, number: int) -> tuple[int, int]:
        """Return the time of a segment's last entry, and the position in the log up to which this is the largest time."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the descriptors."""
        for file in self.files:
            file.close()


class TimeFileReader(FileReader):
    kind = TimeIndex
    files: list[TimeIndex]  # type: ignore[assignment]

    def last_known(self, number: int) -> tuple[int, int]:
        # In both designs that use this class, a segment's file ends with its last time.
        return self.files[number].last_entry.timestamp, self.log.segments[number].size_bytes


class TimeIndexReader(TimeFileReader):
    """The accepted design, on the files that the engine wrote: KIP-33's search, as Kafka does it."""

    def __init__(self, log: WalkedLog) -> None:
        super().__init__(log, lambda segment: local_path(segment.segment.index_path(".timeindex")))

    def look_up(self, timestamp: int) -> Answer:
        before = self.index_bytes_read()
        log_bytes = other_bytes = 0
        for segment, index in zip(self.log.segments, self.files, strict=True):
            if index.last_entry.timestamp < timestamp:
                continue
            position, read = segment.position_of(index.lookup(timestamp).offset)
            other_bytes += read
            walk = segment.walk(position, timestamp)
            log_bytes += walk.read_bytes
            if walk.offset is not None:
                return Answer(walk.offset, walk.start_offset, self.index_bytes_read() - before + other_bytes, log_bytes)
        return Answer(None, None, self.index_bytes_read() - before + other_bytes, log_bytes)


class GranularReader(TimeFileReader):
    """KIP-33's option 1, of any granularity."""

    def __init__(self, log: WalkedLog, folder: Path) -> None:
        super().__init__(log, lambda segment: folder / file_name(segment.base_offset, GranularIndex.SUFFIX))

    def last_known(self, number: int) -> tuple[int, int]:
        # Times never decrease, so the last batch has the largest: the offset index leads close to it.
        index = self.log.segments[number].offset_index
        return self.files[number].last_entry.timestamp, index.entry(index.entries - 1).position if index.entries else 0

    def look_up(self, timestamp: int) -> Answer:
        before = self.index_bytes_read()
        chosen = 0
        for number, index in enumerate(self.files):
            if index.entries:
                if index.entry(0).timestamp >= timestamp:
                    break
                chosen = number
        # The last entry earlier than T is the last one not later than T - 1: times are whole milliseconds.
        entry = self.files[chosen].lookup(timestamp - 1)
        position, other_bytes = self.log.segments[chosen].position_of(entry.offset) if entry.timestamp >= 0 else (0, 0)
        start_offset, log_bytes = None, 0
        for segment in self.log.segments[chosen:]:
            walk = segment.walk(position, timestamp)
            position = 0
            log_bytes += walk.read_bytes
            start_offset = walk.start_offset if start_offset is None else start_offset
            if walk.offset is not None:
                return Answer(walk.offset, start_offset, self.index_bytes_read() - before + other_bytes, log_bytes)
        return Answer(None, start_offset, self.index_bytes_read() - before + other_bytes, log_bytes)


class MinuteMapReader:
    """KIP-33's option 2, loaded from its files.

    CreateTimes are not ordered, so the result may be in T's minute or in any later one. So the whole map of each segment is
    examined, and reading starts at the smallest offset of these minutes: no record before it reaches T.
    """

    entry_bytes = TIME_ENTRY.size

    def __init__(self, log: WalkedLog, folder: Path) -> None:
        self.log = log
        self.minutes: list[dict[int, int]] = []
        for segment in log.segments:
            raw = (folder / file_name(segment.base_offset, MinuteMap.SUFFIX)).read_bytes()
            self.minutes.append({minute: segment.base_offset + offset for minute, offset in TIME_ENTRY.iter_unpack(raw)})
        self.entries = sum(len(known) for known in self.minutes)

    def look_up(self, timestamp: int) -> Answer:
        minute = timestamp - timestamp % MINUTE_MS
        index_bytes = log_bytes = 0
        for segment, known in zip(self.log.segments, self.minutes, strict=True):
            index_bytes += len(known) * self.entry_bytes
            offset = self.begin(known, minute)
            if offset is None:
                continue
            position, read = segment.position_of(offset)
            walk = segment.walk(position, timestamp, offset)
            index_bytes, log_bytes = index_bytes + read, log_bytes + walk.read_bytes
            if walk.offset is not None:
                return Answer(walk.offset, walk.start_offset, index_bytes, log_bytes)
        return Answer(None, None, index_bytes, log_bytes)

    def begin(self, known: dict[int, int], minute: int) -> int | None:
        """Return the offset at which to start reading a segment, None if it has no record that late."""
        return min((offset for at, offset in known.items() if at >= minute), default=None)


class NaiveMinuteMapReader(MinuteMapReader):
    """Option 2 with a naive search, which reads from the closest minute."""

    def begin(self, known: dict[int, int], minute: int) -> int | None:
        closest = min((at for at in known if at >= minute), default=None)
        return None if closest is None else known[closest]


class WideReader(FileReader):
    """The 16-byte offset index: one file and one bisection, but no entry for the records after the last one."""

    kind = WideEntries
    files: list[WideEntries]  # type: ignore[assignment]

    def __init__(self, log: WalkedLog, folder: Path) -> None:
        super().__init__(log, lambda segment: folder / file_name(segment.base_offset, WideOffsetIndex.SUFFIX))

    def last_known(self, number: int) -> tuple[int, int]:
        index = self.files[number]
        _, position, timestamp = index.entry_at(index.entries - 1) if index.entries else (0, 0, -1)
        return timestamp, position

    def look_up(self, timestamp: int) -> Answer:
        before = self.index_bytes_read()
        log_bytes = 0
        for segment, index in zip(self.log.segments, self.files, strict=True):
            slot = index.entries - 1
            if slot >= 0 and index.entry_at(slot)[2] >= timestamp:
                slot = index.slot_before(timestamp)
            walk = segment.walk(index.entry_at(slot)[1] if slot >= 0 else 0, timestamp)
            log_bytes += walk.read_bytes
            if walk.offset is not None:
                return Answer(walk.offset, walk.start_offset, self.index_bytes_read() - before, log_bytes)
        return Answer(None, None, self.index_bytes_read() - before, log_bytes)


class AppendTimeReader(TimeFileReader):
    """KIP-32 option 3: T is an append time. Readers cannot tell which of the records that they read are too early."""

    def __init__(self, log: WalkedLog, folder: Path) -> None:
        super().__init__(log, lambda segment: folder / file_name(segment.base_offset, AppendTimeIndex.SUFFIX))

    def look_up(self, timestamp: int) -> Answer:
        before = self.index_bytes_read()
        for segment, index in zip(self.log.segments, self.files, strict=True):
            if index.last_entry.timestamp < timestamp:
                continue
            slot = index.slot(timestamp - 1)
            entry = index.entry(slot) if slot >= 0 else TimestampOffset(-1, segment.base_offset - 1)
            _, other_bytes = segment.position_of(entry.offset + 1)
            start = entry.offset + 1
            return Answer(start, start, self.index_bytes_read() - before + other_bytes, 0)
        return Answer(None, None, self.index_bytes_read() - before, 0)
