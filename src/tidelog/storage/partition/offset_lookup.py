"""Offsets by time in a log that this process writes: the answers to ListOffsets (KIP-79, KIP-734; spec §13).

`reader.offset_targets` has the targets. This search uses the segments in memory and their indexes. It gives the same answers as
`reader.time_search`, which searches any folder. Both differ from Kafka in two points. If the segment that Kafka picks has no
match, Kafka answers "none", but this search continues with the next segment. And a record below the log start never counts as the
latest record. Therefore the answer "none" is always true.

For a consumer (`fetch_offset_for_timestamp`, spec §13.2) the log ends at the high watermark or the last stable offset: later
records are not found, and LATEST returns that end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tidelog.clock import Clock
from tidelog.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
)
from tidelog.reader.offset_targets import Searched, check_target, place_of
from tidelog.records.batch import BatchHeader
from tidelog.records.records import max_timestamp_record
from tidelog.storage.partition.watermarks import FetchIsolation, Watermarks
from tidelog.storage.segment.log_segment import LogSegment, TimestampAndOffset
from tidelog.storage.segment.log_segments import LogSegments

CHECKED_AT_ONCE = 4
"""How many segments' time indexes are checked in one call within `non_blocking`; the others are left to another thread."""


class WrittenLog(Searched, Protocol):
    """The part of a written log's interface that searches need."""

    clock: Clock
    segments: LogSegments
    watermarks: Watermarks

    @property
    def log_end_offset(self) -> int: ...


def fetch_offset_by_timestamp(log: WrittenLog, timestamp: int) -> TimestampAndOffset | None:
    """Return the offset for `timestamp` (ms, or a special value), or None if there is no record at or after that time.

    Raises UnsupportedForMessageFormatError for anything but EARLIEST and LATEST if the topic's format is v0;
    UnsupportedVersionError for an unknown negative value; CorruptDataError, StorageError.
    """
    check_target(timestamp)
    place = place_of(timestamp, log, lambda: log.log_end_offset)
    if place is not None:
        return TimestampAndOffset(NO_TIMESTAMP, place.offset, place.leader_epoch)
    return _find_max(log) if timestamp == MAX_TIMESTAMP else _find_time(log, timestamp)


def fetch_offset_for_timestamp(log: WrittenLog, timestamp: int, isolation: FetchIsolation) -> TimestampAndOffset | None:
    """Return the offset for `timestamp` among the records that a consumer with `isolation` may read. Raises what
    `fetch_offset_by_timestamp` raises.
    """
    if isolation is FetchIsolation.HIGH_WATERMARK:
        end = log.watermarks.high_watermark
    else:
        end = log.watermarks.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset
    if timestamp >= 0 and log.message_format:
        found = _find_time(log, timestamp)
        return found if found is not None and found.offset < end else None
    found = fetch_offset_by_timestamp(log, timestamp)
    if timestamp == LATEST and found is not None:
        return found._replace(offset=end)
    if timestamp in (EARLIEST, EARLIEST_LOCAL) or found is None or found.offset < end:
        return found
    return None


def legacy_fetch_offsets_before(log: WrittenLog, timestamp: int, max_offsets: int) -> list[int]:
    """Return up to `max_offsets` base offsets of segments that were not modified after `timestamp` (ms; LATEST, EARLIEST), newest
    first.

    ListOffsets v0 needs this. It is older than records' timestamps, and uses the files' modification times. Raises StorageError.
    """
    segments = log.segments.values()
    points = [(max(segment.base_offset, log.log_start_offset), segment.last_modified_ms) for segment in segments]
    if segments[-1].size_bytes > 0:
        points.append((log.log_end_offset, log.clock.now_ms()))
    if timestamp == LATEST:
        start = len(points) - 1
    elif timestamp == EARLIEST:
        start = 0
    else:
        start = max((index for index, (_, modified_ms) in enumerate(points) if modified_ms <= timestamp), default=-1)
    taken = [offset for offset, _ in points[max(0, start + 1 - max_offsets) : start + 1]]
    return sorted(taken, reverse=True)


def _checked(segments: Iterable[LogSegment]) -> Iterator[LogSegment]:
    """Yield segments whose largest timestamp was checked against the log. On a thread that serves clients, only a few are
    checked.
    """
    unchecked = 0
    for segment in segments:
        if not segment.is_largest_checked:
            unchecked += 1
            segment.check_largest_timestamp(elsewhere=unchecked > CHECKED_AT_ONCE)
        yield segment


def _find_time(log: WrittenLog, timestamp: int) -> TimestampAndOffset | None:
    start = log.watermarks.log_start_offset
    segments = log.segments.values(start)
    for segment in segments if len(segments) == 1 and segments[0].is_largest_checked else _checked(segments):
        if segment.reaches(timestamp):
            found = segment.find_offset_by_timestamp(timestamp, start)
            if found is not None:
                return found
    return None


def _find_max(log: WrittenLog) -> TimestampAndOffset | None:
    """Return the record at or above the log start with the largest timestamp; if several have it, the first of them."""
    start = log.log_start_offset
    # Among equal ones the earliest segment comes first.
    for segment in sorted(_checked(log.segments.values(start)), key=lambda one: -one.check_largest_timestamp().timestamp):
        largest = segment.check_largest_timestamp()
        if largest.timestamp < 0:
            return None
        place = segment.translate_offset(largest.offset)
        found = None if place is None else _first_with(segment, largest.timestamp, segment.batches(place.position), start)
        if found is not None:
            return found
        # The segment's latest record lies below the log start.
        return _largest_of_all(log, start)
    return None


def _first_with(segment: LogSegment, timestamp: int, headers: Iterator[BatchHeader], start: int) -> TimestampAndOffset | None:
    for header in headers:
        if header.max_timestamp == timestamp:
            return _largest_in(segment, header, start, timestamp)
    return None


def _largest_in(segment: LogSegment, header: BatchHeader, start: int, at_least: int) -> TimestampAndOffset | None:
    """Return the record of a batch at or above `start` with the largest timestamp; if several have it, the first of them."""
    batch = segment.log.read_batch(header)
    record = segment.searched.find(
        (header, start), lambda limit: max_timestamp_record(header, batch, start, path=segment.log.path, limit_bytes=limit)
    )
    if record is None or record[1] < at_least:
        return None
    return TimestampAndOffset(record[1], record[0], header.leader_epoch)


def _largest_of_all(log: WrittenLog, start: int) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, at or above `start`. Later segments are searched only if they have a
    larger timestamp.
    """
    best: TimestampAndOffset | None = None
    for segment in log.segments.values(start):
        largest = segment.check_largest_timestamp()
        if best is not None and largest.timestamp <= best.timestamp:
            continue
        found = _largest_from(segment, start)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _largest_from(segment: LogSegment, start: int) -> TimestampAndOffset | None:
    """Return the record of a segment at or above `start` with the largest timestamp; if several have it, the first of them."""
    place = segment.translate_offset(max(start, segment.base_offset))
    if place is None:
        return None
    # Records of the first batch below `start` do not count; for all other batches the header's timestamp applies.
    first = next(segment.batches(place.position))
    found = _largest_in(segment, first, start, 0)
    headers = segment.headers_from(first.position + first.size)
    largest = headers.largest()
    if largest < 0 or (found is not None and largest <= found.timestamp):
        return found
    reaching = headers.first_reaching(largest)
    return None if reaching is None else _first_with(segment, largest, segment.batches(reaching), start)
