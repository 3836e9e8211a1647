"""What each design must read at a start, to append again and to know each segment's largest time for retention.

| | after a clean shutdown | after a crash: the last segment |
|---|---|---|
| time index | last entries | all batch headers; the rebuilt index is the same |
| minute, second index | last entries; then the log after the last entry of the offset index | the same |
| minute map | every entry, into memory; then the log from the largest minute's first offset on | every record, opened |
| 16-byte offset index | last entries; then the log after them | batch headers |
| append time index | last entries | impossible from the log: from the leader, or with the time of the rebuild |
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies.indexes.builders import EntryFiles
from studies.indexes.readers import FileReader, MinuteMapReader
from studies.indexes.written_log import Append, WalkedLog, WalkedSegment
from tidelog.formats.files import read_whole
from tidelog.formats.offset_index import OffsetIndex
from tidelog.records.records import iter_records
from tidelog.storage.loading.log_scan import scan_log


class Start(NamedTuple):
    """What a start read, and what it found."""

    entries: int
    index_bytes: int
    log_bytes: int
    largest: list[int]
    """The largest time of each segment for which the design finds one."""


class Rebuilt(NamedTuple):
    """The cost of rebuilding the last segment's index, and whether the result equals the original."""

    log_bytes: int
    records_opened: int
    is_identical: bool


def start_clean(log: WalkedLog, reader: FileReader | MinuteMapReader) -> Start:
    """Find each segment's largest time with a design's files."""
    if isinstance(reader, MinuteMapReader):
        return _load_map(log, reader)
    before = reader.index_bytes_read()
    log_bytes = 0
    largest: list[int] = []
    for number, segment in enumerate(log.segments):
        known, position = reader.last_known(number)
        log_bytes += segment.size_bytes - position
        tail = segment.max_timestamps[segment.positions >= position]
        largest.append(max(known, int(tail.max(initial=-1))))
    entries = sum(1 for file in reader.files if file.entries)
    return Start(entries, reader.index_bytes_read() - before, log_bytes, largest)


def _load_map(log: WalkedLog, reader: MinuteMapReader) -> Start:
    log_bytes = 0
    largest: list[int] = []
    for segment, known in zip(log.segments, reader.minutes, strict=True):
        position, _ = segment.position_of(known[max(known)])
        log_bytes += segment.size_bytes - position
        largest.append(int(segment.max_timestamps[segment.positions >= position].max()))
    return Start(reader.entries, reader.entries * reader.entry_bytes, log_bytes, largest)


def rebuild_time_index(segment: WalkedSegment, interval_bytes: int) -> Rebuilt:
    """Build the accepted design's two files from the log, as the engine's recovery does."""
    scanned = scan_log(segment.segment.file, segment.size_bytes, segment.base_offset, interval_bytes)
    same = scanned.time_entries == read_whole(segment.segment.index_path(".timeindex"))
    same &= scanned.offset_entries == read_whole(segment.segment.index_path(".index"))
    return Rebuilt(scanned.valid_bytes, 0, same)


def rebuild(segment: WalkedSegment, builder: EntryFiles, original: Path, interval_bytes: int, now_ms: int) -> Rebuilt:
    """Rebuild a design's file by passing the log to its builder again. `now_ms` is the only append time available.

    (Batches with LogAppendTime contain their append times.)
    """
    scanned = scan_log(segment.segment.file, segment.size_bytes, segment.base_offset, interval_bytes)
    index = OffsetIndex.from_bytes(segment.base_offset, scanned.offset_entries)
    indexed = {index.entry(slot).position for slot in range(index.entries)}
    opened = 0
    for header in segment.headers:
        if builder.LOOKS_INTO_BATCHES:
            records = iter_records(header, segment.segment.read_batch(header))
            timestamps = np.array([record.timestamp for record in records], np.int64)
            opened += len(timestamps)
        else:
            timestamps = np.array([header.max_timestamp], np.int64)
        builder.append(
            Append(
                segment.base_offset,
                header.position,
                header.size,
                header.base_offset,
                header.last_offset,
                timestamps,
                now_ms,
                header.position in indexed,
            )
        )
    builder.close()
    return Rebuilt(segment.size_bytes, opened, builder.entry_bytes_of(segment.base_offset) == original.read_bytes())
