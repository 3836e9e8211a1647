"""Explains a search by time, with one line per step in the trace.

Lines are in the order of the search. Each segment, from the oldest to the newest, has a line with its largest timestamp and the
source of that timestamp. If the segment is searched, further lines show the time index entry, the offset index entry, the walked
batches and the record. The last lines are Apache Kafka's answer and the answer of this search.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP
from tidelog.reader.log import Log
from tidelog.reader.time_search import FoundOffset
from tidelog.reader.trace import BatchesStep, KafkaStep, OffsetIndexStep, RecordStep, SegmentStep, Step, TimeIndexStep, Trace
from tidelog.sizes import show_size
from tidelog.times import format_time

_QUESTIONS = {
    EARLIEST: "the first offset of the log",
    LATEST: "the offset after the last record",
    MAX_TIMESTAMP: "the record with the largest timestamp",
}

_SOURCES = {
    "index": "its last time index entry",
    "log": "its batches",
    "summary": "the summary of all segments",
    "mtime": "its file's modification time",
    "none": "nothing",
}


def explain(log: Log, timestamp: int, trace: Trace, found: FoundOffset) -> Iterator[str]:
    """Yield the lines that describe a search in one partition."""
    question = _QUESTIONS.get(timestamp) or f"the first record at or after {format_time(timestamp)}"
    yield f"{log.topic}-{log.partition}: {question}, in offsets {log.log_start_offset} to {log.log_end_offset}"
    for _, sentence in explained(trace, found):
        yield f"  {sentence}"
    if found.offset < 0:
        yield f"  answer: none; {show_size(trace.bytes_read)} read"
        return
    time = "" if found.timestamp < 0 else f" at {format_time(found.timestamp)}"
    yield f"  answer: offset {found.offset}{time}; {show_size(trace.bytes_read)} read"


def explained(trace: Trace, found: FoundOffset) -> Iterator[tuple[Step, str]]:
    """Yield each step with a sentence about it. A step within a segment follows the segment's step, and its sentence is
    indented.
    """
    for step in _in_order(trace.steps):
        yield step, _kafka(step, found) if isinstance(step, KafkaStep) else _sentence(step)


def _in_order(steps: list[Step]) -> Iterator[Step]:
    """Yield the steps, with each segment's step moved before the steps within that segment. A search records the segment's step
    last.
    """
    inside: list[Step] = []
    for step in steps:
        if isinstance(step, SegmentStep | KafkaStep):
            yield step
            yield from inside
            inside = []
        else:
            inside.append(step)
    yield from inside


def _sentence(step: SegmentStep | TimeIndexStep | OffsetIndexStep | BatchesStep | RecordStep) -> str:
    if isinstance(step, SegmentStep):
        return _segment(step)
    if isinstance(step, TimeIndexStep):
        return _time_index(step)
    if isinstance(step, OffsetIndexStep):
        return _offset_index(step)
    if isinstance(step, BatchesStep):
        size = show_size(step.end_position - step.start_position)
        batches = f"{_count(step.batches, 'batch', 'batches')} ({size})"
        return f"  walked {batches} from byte {step.start_position} to {step.end_position}, read the records of {step.opened}"
    where = f"the batch of offsets {step.base_offset} to {step.last_offset} at byte {step.position}"
    return f"  record: offset {step.offset} at {format_time(step.timestamp)}, in {where}"


def _segment(step: SegmentStep) -> str:
    name = f"segment {step.base_offset}"
    if step.verdict == "below log start":
        return f"{name}: below the log start, skipped"
    if step.verdict == "no timestamps" or step.largest_timestamp < 0:
        return f"{name}: has no timestamps, skipped"
    largest = f"largest timestamp {format_time(step.largest_timestamp)} by {_SOURCES[step.source]}"
    if step.verdict == "too early":
        return f"{name}: {largest}: too early, skipped"
    if step.verdict == "no match":
        return f"{name}: {largest}, but no record at or above the log start has it: on to the next segment"
    return f"{name}: {largest}" + (": late enough" if step.verdict == "match" else "")


def _time_index(step: TimeIndexStep) -> str:
    entries = _count(step.entries, "entry", "entries")
    if step.slot < 0:
        return f"  time index ({entries}): no entry is early enough, start at the segment's start"
    time = format_time(step.timestamp)
    return f"  time index ({entries}): entry {step.slot} says that nothing up to offset {step.offset} is later than {time}"


def _offset_index(step: OffsetIndexStep) -> str:
    entries = _count(step.entries, "entry", "entries")
    if step.slot < 0:
        return f"  offset index ({entries}): no entry is at or below offset {step.target_offset}, start at byte 0"
    return f"  offset index ({entries}): entry {step.slot} puts offset {step.offset} at byte {step.position}"


def _kafka(step: KafkaStep, found: FoundOffset) -> str:
    if step.offset == found.offset:
        return "Apache Kafka answers the same"
    if step.base_offset is None:
        return "Apache Kafka answers none: it finds no segment that is late enough"
    by = " by its file time" if step.source == "mtime" else ""
    if step.offset < 0:
        return f"Apache Kafka answers none: it picks segment {step.base_offset}{by} and looks no further"
    return f"Apache Kafka answers offset {step.offset}, from segment {step.base_offset}{by}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
