"""The search by time: finds the offset at which to start reading for a timestamp (KIP-33, KIP-79, KIP-734; spec §13).

The answer for a time is the first record, by offset, with a timestamp at or after it. For MAX_TIMESTAMP, it is the first record
with the largest timestamp. The other targets need no search (`offset_targets`).

The answers are the same as Kafka 3.9.1's, including control records with their brokers' timestamps, except for one deliberate
difference. Kafka picks the first segment whose largest timestamp is at or after the target (or whose file's modification time is,
if the segment has no timestamps), and answers "none" if that segment has no match. So later matches are hidden by a segment
without timestamps, by an empty segment, or by a log start inside the picked segment, and the largest timestamp may belong to a
record below the log start. Here the search continues with the next segment, and ignores records below the log start, so "none" is
correct. Kafka also hides records at or above the high watermark. The high watermark in a folder's checkpoint is seconds old,
so here such a record is found and marked `is_past_high_watermark`. read_committed ends at the last stable offset, as in Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import (
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    Isolation,
    check_isolation,
)
from tidelog.reader import segment_time
from tidelog.reader.log import Log
from tidelog.reader.offset_targets import check_target, place_of
from tidelog.reader.segment import LargestTimestamp, Segment
from tidelog.reader.segment_time import FoundRecord
from tidelog.reader.trace import KafkaStep, SegmentStep, TimestampSource, Trace, Verdict
from tidelog.records.records import max_timestamp_record


class FoundOffset(NamedTuple):
    """The result of a search. `timestamp` is the record's timestamp (ms), or -1 for targets like EARLIEST and LATEST.
    `leader_epoch` is -1 if unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int
    is_past_high_watermark: bool = False


def find_offset(
    log: Log, timestamp: int, isolation: Isolation = "read_uncommitted", trace: Trace | None = None
) -> FoundOffset | None:
    """Return the offset for `timestamp` (ms, or one of the special values), or None if no record is at or after that time.

    Raises UnsupportedForMessageFormatError in a v0 topic for anything but EARLIEST and LATEST, UnsupportedVersionError for
    an unknown negative value, and what reading the log raises (CorruptDataError, SegmentChangedError).
    """
    check_isolation(isolation)
    if trace is None:
        return _find(log, timestamp, isolation, None)
    before = _bytes_read(log)
    found = _find(log, timestamp, isolation, trace)
    trace.bytes_read += _bytes_read(log) - before
    if timestamp >= 0:
        trace.add(_kafka_answer(log, timestamp))
    return found


def find_from(log: Log, timestamp: int, offset: int) -> int | None:
    """Return the offset of the first record that is at or after `offset` and at or after `timestamp` (ms), or None if there is
    none.

    This is for a reader that continues at `offset`. A log of format v0 has no timestamps, so the result is None. Raises what
    reading the log raises (CorruptDataError, SegmentChangedError).
    """
    log.check_names()
    found = _find_time(log, timestamp, None, max(offset, log.log_start_offset))
    return None if found is None else found.offset


def _find(log: Log, timestamp: int, isolation: Isolation, trace: Trace | None) -> FoundOffset | None:
    check_target(timestamp)
    log.check_names()
    end_offset = (lambda: log.last_stable_offset) if isolation == "read_committed" else (lambda: log.log_end_offset)
    place = place_of(timestamp, log, end_offset, log.tiered)
    if place is not None:
        # The end itself may be at the high watermark.
        past = timestamp == LATEST and log.high_watermark is not None and place.offset > log.high_watermark
        return FoundOffset(place.offset, NO_TIMESTAMP, place.leader_epoch, past)
    found = _find_max(log, trace) if timestamp == MAX_TIMESTAMP else _find_time(log, timestamp, trace, log.log_start_offset)
    if found is None or (isolation == "read_committed" and found.offset >= log.last_stable_offset):
        return None
    past = log.high_watermark is not None and found.offset >= log.high_watermark
    return FoundOffset(found.offset, found.timestamp, found.header.leader_epoch, past)


def _find_time(log: Log, timestamp: int, trace: Trace | None, start: int) -> FoundRecord | None:
    found = None
    log.expect_search()
    for segment in log.segments:
        found, verdict, largest = _search(segment, timestamp, start, trace)
        if trace is not None:
            trace.add(SegmentStep(segment.base_offset, segment.log_path, largest.timestamp, largest.source, verdict))
        segment.close()
        if found is not None:
            break
    return found


def _search(
    segment: Segment, timestamp: int, start: int, trace: Trace | None
) -> tuple[FoundRecord | None, Verdict, LargestTimestamp]:
    if segment.next_base_offset is not None and segment.next_base_offset <= start:
        return None, "below log start", LargestTimestamp(NO_TIMESTAMP, segment.base_offset, "none")
    largest = segment_time.largest_timestamp(segment, at_least=timestamp)
    if largest.source == "none":
        return None, "no timestamps", largest
    if largest.timestamp < timestamp:
        return None, "too early", largest
    found = segment_time.find_offset_by_timestamp(segment, timestamp, start, trace)
    return found, "no match" if found is None else "match", largest


def _find_max(log: Log, trace: Trace | None) -> FoundRecord | None:
    """Return the first record with the largest timestamp, at or above the log start."""
    candidates: list[tuple[Segment, LargestTimestamp]] = []
    log.expect_search()
    for segment in log.segments_from(log.log_start_offset):
        largest = segment_time.largest_timestamp(segment)
        if segment.base_offset < log.log_start_offset:
            largest = _largest_from(segment, log.log_start_offset)
        if trace is not None:
            verdict: Verdict = "no timestamps" if largest.source == "none" else "searched"
            trace.add(SegmentStep(segment.base_offset, segment.log_path, largest.timestamp, largest.source, verdict))
        candidates.append((segment, largest))
        segment.close()
    # max() returns the first of equal items, and so the earliest segment.
    chosen = max(candidates, key=lambda candidate: candidate[1].timestamp, default=None)
    if chosen is None or chosen[1].source == "none":
        return None
    return segment_time.find_max_timestamp(*chosen, log.log_start_offset)


def _largest_from(segment: Segment, start: int) -> LargestTimestamp:
    """Return the largest timestamp of the records at or above an offset inside a segment. No index has this timestamp."""
    largest = LargestTimestamp(NO_TIMESTAMP, start, "none")
    for header in segment.headers(segment.floor_position(start), check_crc=True):
        if header.last_offset < start or header.max_timestamp <= largest.timestamp:
            continue
        record = max_timestamp_record(header, segment.read_batch(header), start, path=segment.log_path)
        if record is not None and record[1] > largest.timestamp:
            largest = LargestTimestamp(record[1], record[0], "log")
    return largest


def _kafka_answer(log: Log, timestamp: int) -> KafkaStep:
    """Return the answer of Kafka 3.9.1 for the same log: it picks one segment by time index or by the file's modification
    time.
    """
    for segment in log.segments:
        largest, source = _largest_as_kafka_has_it(segment, timestamp)
        if largest < timestamp:
            continue
        found = segment_time.find_offset_by_timestamp(segment, timestamp, log.log_start_offset)
        hidden = found is None or (log.high_watermark is not None and found.offset >= log.high_watermark)
        offset, found_timestamp = (UNKNOWN_OFFSET, NO_TIMESTAMP) if found is None or hidden else (found.offset, found.timestamp)
        return KafkaStep(segment.base_offset, source, offset, found_timestamp)
    return KafkaStep(None, "none", UNKNOWN_OFFSET, NO_TIMESTAMP)


def _largest_as_kafka_has_it(segment: Segment, timestamp: int) -> tuple[int, TimestampSource]:
    """Return the largest timestamp that Kafka assumes for a segment.

    This is the last time index entry, unchecked, or a larger timestamp appended after that entry. Without timestamps, it is the
    file's modification time.
    """
    entry = segment.unchecked_last_time_entry
    if segment.is_last:
        largest = segment_time.largest_timestamp(segment, at_least=timestamp)
        if largest.timestamp > entry.timestamp:
            return largest.timestamp, largest.source
    return (entry.timestamp, "index") if entry.timestamp >= 0 else (segment.modified_ms, "mtime")


def _bytes_read(log: Log) -> int:
    return sum(segment.bytes_read for segment in log.segments)
