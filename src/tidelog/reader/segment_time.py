"""Time look-ups in one segment: its largest timestamp, and the first record at or after a timestamp (spec §3, §4.9).

An entry (T, o) of the time index claims that o's batch is the first with a timestamp at or after T. Before the entry is used,

* the batch that contains o must have T as its largest timestamp, and a valid checksum;
* every earlier batch must be before T. All earlier headers are checked, within the budget of `proven_head`. Beyond the budget,
  only the headers since the previous entry's batch are checked, however many there are, so that a single wrong entry is always
  detected. If there are many headers to check and a time map is bound to the log, the map is used instead (`mapped_head`).

The log after the last entry is walked batch by batch. So a missing, short or scrambled index only costs time.
docs/spec/what-is-believed.md lists what is still trusted, and what the checks cost.

In Kafka's entries T belongs to o's batch. KIP-33's text describes a different rule. No release used it, but it is supported
here: o is the next offset at the time of the entry (after a roll, the next segment's base), and a batch before o has T. That
batch, the first with T, is found by a walk. KIP-33 also gives a segment without timestamps one entry: the file's modification
time with the first message's offset or the next segment's base. Such an entry leads to no record, and is skipped.

A topic of format v0 with LogAppendTime also has entries, because Kafka indexed append times, which v0 cannot store. These entries
lead to no record, and are skipped without a notice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.segment import LargestTimestamp, Segment
from tidelog.reader.trace import BatchesStep, RecordStep, TimeIndexStep, Trace
from tidelog.records.batch import BatchHeader
from tidelog.records.records import first_record_at, max_timestamp_record
from tidelog.times import show_timestamp


class FoundRecord(NamedTuple):
    """A record found by time: offset, timestamp (ms), batch."""

    offset: int
    timestamp: int
    header: BatchHeader


def largest_timestamp(segment: Segment, at_least: int | None = None) -> LargestTimestamp:
    """Return the largest timestamp of all batches; (-1, base, "none") if no batch has a timestamp.

    The result also has an offset of the first batch with this timestamp, and says whether the index or the log was the source.
    With `at_least`, the timestamp of the last time index entry is returned if its batch is at or after `at_least`; then nothing
    is walked.
    """
    if segment.largest is not None:
        return segment.largest
    if segment.facts is not None:
        known = segment.facts.largest
        segment.largest = LargestTimestamp(known, segment.facts.largest_offset, "summary" if known >= 0 else "none")
        return segment.largest
    position = 0
    largest = LargestTimestamp(NO_TIMESTAMP, segment.base_offset, "none")
    index = segment.time_index
    if index is not None:
        slot = _last_slot(segment, index)
        if at_least is not None and slot >= 0:
            late = _late_enough(segment, index, slot, at_least)
            if late is not None:
                return late
        last = _entry(segment, index, slot) if slot >= 0 else None
        if last is not None:
            entry, batch = last
            position = batch.end_position
            # A forged entry that happens to be true: no batch up to the entry's batch has a timestamp.
            if entry.timestamp != NO_TIMESTAMP:
                largest = LargestTimestamp(entry.timestamp, entry.offset, "index")
    if index is not None and largest.source == "none" and _is_v0_throughout(segment):
        position = segment.end_position
    indexed = largest
    for header in segment.headers(position, check_crc=True):
        if header.max_timestamp > largest.timestamp:
            largest = LargestTimestamp(header.max_timestamp, header.last_offset, "log")
    if indexed.source == "index" and largest.source == "log" and not segment.is_last:
        # A roll writes the largest timestamp as the last entry. A live segment's index may lag behind.
        path = segment.log_path if index is None or index.path is None else index.path
        ends = f"ends at {show_timestamp(indexed.timestamp)}, the segment at {show_timestamp(largest.timestamp)}"
        segment.notices.note(path, f"{ends}: entries are missing")
    segment.largest = largest
    return largest


def retention_timestamp(segment: Segment) -> LargestTimestamp:
    """Return the timestamp that Kafka's retention uses: the largest timestamp, or, if no batch has one, the file's modification
    time ("mtime").
    """
    largest = largest_timestamp(segment)
    return LargestTimestamp(segment.modified_ms, segment.base_offset, "mtime") if largest.source == "none" else largest


def _late_enough(segment: Segment, index: TimeIndex, slot: int, at_least: int) -> LargestTimestamp | None:
    """Return an entry's timestamp if the entry's batch is at or after `at_least`: the segment then has such a record, so earlier
    batches need no check. Otherwise return None.
    """
    try:
        entry = index.entry(slot)
    except SegmentChangedError:
        return None
    if entry.timestamp < at_least or entry.offset < segment.base_offset:
        return None
    batch = segment.translate_offset(entry.offset)
    if batch is None or batch.max_timestamp != entry.timestamp:
        return None
    return LargestTimestamp(entry.timestamp, entry.offset, "index")


def find_offset_by_timestamp(
    segment: Segment, timestamp: int, starting_offset: int, trace: Trace | None = None
) -> FoundRecord | None:
    """Return the first record with `offset >= starting_offset` whose timestamp is at least `timestamp`, including control
    records.

    Raises CorruptBatchError, InvalidRecordError, DecompressionError, SegmentChangedError.
    """
    start = start_position(segment, timestamp, trace)
    if starting_offset > segment.base_offset:
        start = max(start, segment.floor_position(starting_offset))
    position, batches, opened = start, 0, 0
    found: FoundRecord | None = None
    for header in segment.headers(start, check_crc=True):
        position, batches = header.end_position, batches + 1
        if header.max_timestamp < timestamp or header.last_offset < starting_offset:
            continue
        opened += 1
        batch = segment.read_batch(header)
        record = first_record_at(header, batch, timestamp, starting_offset, path=segment.log_path)
        if record is not None:
            segment.check_follower(header)
            found = FoundRecord(*record, header)
            break
    if trace is not None:
        trace.add(BatchesStep(segment.log_path, start, position, batches, opened))
        if found is not None:
            header = found.header
            trace.add(
                RecordStep(
                    segment.log_path, header.position, header.base_offset, header.last_offset, found.offset, found.timestamp
                )
            )
    return found


def find_max_timestamp(segment: Segment, largest: LargestTimestamp, starting_offset: int) -> FoundRecord | None:
    """Return the first record at or above `starting_offset` with the timestamp `largest`, which is the largest one at or above
    that offset.
    """
    for header in segment.headers(segment.floor_position(max(largest.offset, starting_offset)), check_crc=True):
        # If the log start is within a batch, the record with the batch's largest timestamp may be deleted.
        if header.max_timestamp >= largest.timestamp and header.last_offset >= starting_offset:
            record = max_timestamp_record(header, segment.read_batch(header), starting_offset, path=segment.log_path)
            if record is not None and record[1] == largest.timestamp:
                segment.check_follower(header)
                return FoundRecord(*record, header)
    return None


def start_position(segment: Segment, timestamp: int, trace: Trace | None = None) -> int:
    """Return the position at which the walk for `timestamp` starts: the batch of the last time index entry at or before it, or
    0.

    In a bucket, a time map that is bound to the log is used instead, because it takes fewer requests. With a trace, the indexes
    are always used, because the trace shows them.
    """
    if trace is None and segment.size_bytes > segment.head.budget.map_bytes and not isinstance(segment.log_path, Path):
        from tidelog.reader import mapped_head

        time_map = mapped_head.bound_time_map(segment)
        start = None if time_map is None else mapped_head.start_by_map(segment, time_map, timestamp)
        if start is not None:
            return start
    index = segment.time_index
    if index is None:
        return 0
    try:
        slot = min(index.slot(timestamp), _last_slot(segment, index))
    except SegmentChangedError as error:
        segment.distrust_time_index(error.message)
        return 0
    inner = None if trace is None else Trace()
    known = _entry(segment, index, slot, inner) if slot >= 0 else None
    if known is not None and known[0].timestamp > timestamp:
        known = None  # If the index is out of order or has grown, a lower slot may have a later time.
    if trace is not None and inner is not None and index.path is not None:
        entry = TimestampOffset(NO_TIMESTAMP, segment.base_offset) if known is None else known[0]
        trace.add(TimeIndexStep(index.path, -1 if known is None else slot, index.entries, entry.timestamp, entry.offset))
        trace.steps += [] if known is None else inner.steps
    return 0 if known is None else known[1].position


def _last_slot(segment: Segment, index: TimeIndex) -> int:
    """Return the slot of the last entry for a batch that existed when the folder was listed. The owner may have added entries."""
    if not segment.may_have_grown:
        return index.entries - 1
    next_offset = segment.next_offset
    try:
        last = index.entries - 1
        return index.entries_below(next_offset) - 1 if last >= 0 and index.entry(last).offset >= next_offset else last
    except SegmentChangedError as error:
        segment.distrust_time_index(error.message)
        return -1


def _entry(
    segment: Segment, index: TimeIndex, slot: int, trace: Trace | None = None
) -> tuple[TimestampOffset, BatchHeader] | None:
    """Return an entry and its batch if they agree. Otherwise return None, and do not use the index any longer."""
    try:
        entry = index.entry(slot)
        before = index.entry(slot - 1) if slot else None
    except SegmentChangedError as error:
        segment.distrust_time_index(error.message)
        return None
    batch = None if entry.offset < segment.base_offset else segment.translate_offset(entry.offset, trace)
    if batch is not None and batch.magic == 0:
        segment.distrust_time_index(None)
        return None
    if batch is not None and _agrees(segment, entry, before, batch):
        return entry, batch
    batch = _first_to_reach(segment, entry, before)
    if batch is not None:
        if trace is not None:
            trace.steps.clear()  # The recorded look-up in the offset index was for a different batch.
        return TimestampOffset(entry.timestamp, batch.last_offset), batch
    reason = f"entry {slot} ({show_timestamp(entry.timestamp)} at offset {entry.offset}) does not agree with the log"
    segment.distrust_time_index(None if index.entries == 1 and _is_file_time(segment, entry) else reason)
    return None


def _agrees(segment: Segment, entry: TimestampOffset, before: TimestampOffset | None, batch: BatchHeader) -> bool:
    """Return whether `entry` agrees with `batch`, and every earlier batch that is checked is before the entry's timestamp."""
    if batch.max_timestamp != entry.timestamp or (batch.magic == 2 and batch.base_offset > entry.offset):
        return False
    if before is not None and not _may_precede(segment, before, entry):
        return False
    try:
        largest = _mapped(segment, batch.position)
        if largest is None:
            largest = segment.head.largest_before(batch.position)
        if largest is None:
            segment.head.budget.note_end(segment.log_path, segment.notices)
            position = 0 if before is None else _position_of(segment, before)
            largest = max(segment.times(min(position, batch.position), batch.position), default=NO_TIMESTAMP)
    except CorruptBatchError:
        return False  # The walk through the log checks everything, and will report this error.
    return largest < entry.timestamp


def _mapped(segment: Segment, position: int) -> int | None:
    """Look up in the time map the largest timestamp before a position. Return None if there is no map, or if a walk would be
    short and within the budget.
    """
    distance = position - segment.head.walked_bytes
    if distance <= 0 or (distance < segment.head.budget.map_bytes and segment.head.budget.suffices(distance)):
        return None
    from tidelog.reader import mapped_head  # Import on use: a small log does not need this module.

    time_map = mapped_head.bound_time_map(segment)
    return None if time_map is None else mapped_head.largest_by_map(segment, time_map, position)


def _may_precede(segment: Segment, before: TimestampOffset, entry: TimestampOffset) -> bool:
    return segment.base_offset <= before.offset <= entry.offset and before.timestamp < entry.timestamp


def _position_of(segment: Segment, entry: TimestampOffset) -> int:
    """Return the position of an entry's batch; 0 if entry and batch disagree, because then the entry proves nothing."""
    batch = segment.translate_offset(entry.offset)
    return 0 if batch is None or batch.max_timestamp != entry.timestamp else batch.position


def _first_to_reach(segment: Segment, entry: TimestampOffset, before: TimestampOffset | None) -> BatchHeader | None:
    """Return the batch that an entry (T, o) means by KIP-33's text: the first with timestamp T, if no batch before o has a later
    timestamp. Return None if the entry is wrong by that rule.
    """
    if before is not None and not _may_precede(segment, before, entry):
        return None
    first = None
    for header in segment.headers(check_crc=True):
        if header.last_offset >= entry.offset:
            return first if header.magic < 2 or header.base_offset >= entry.offset else None
        if header.max_timestamp > entry.timestamp:
            return None
        if first is None and header.max_timestamp == entry.timestamp:
            first = header
    return first if entry.offset in (segment.next_offset, segment.next_base_offset) else None


def _is_file_time(segment: Segment, entry: TimestampOffset) -> bool:
    """Return whether the segment has no timestamps and the entry is the one that KIP-33's text gives such a segment, judged by
    the entry's offset.
    """
    headers = segment.headers(check_crc=True)
    first = next(headers, None)
    is_first = first is not None and segment.base_offset <= entry.offset <= first.last_offset
    if not is_first and entry.offset not in (segment.base_offset, segment.next_offset, segment.next_base_offset):
        return False
    return first is None or (first.max_timestamp < 0 and all(header.max_timestamp < 0 for header in headers))


def _is_v0_throughout(segment: Segment) -> bool:
    """Return whether every batch is v0, which has no timestamps. In that case, a time index that leads to no record is valid."""
    last = segment.valid_end().last_header
    if last is None or last.magic != 0:
        return False
    return all(header.magic == 0 for header in segment.headers())
