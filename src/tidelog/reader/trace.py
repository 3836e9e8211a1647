"""The steps of a search by time: typed, so that `explain` can print them and tests can count them.

A search appends to a `Trace` that the caller hands in; without one nothing is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

TimestampSource = Literal["index", "log", "mtime", "none"]
"""Where a segment's largest timestamp comes from: the last time index entry, batch headers after it, the file's time."""

Verdict = Literal["below log start", "no timestamps", "too early", "searched", "no match", "match"]


class SegmentStep(NamedTuple):
    """A segment was considered.

    `largest_timestamp` is -1 without timestamps; of a segment that is searched it may be a lower bound (the last time index
    entry already reaches the target).
    """

    base_offset: int
    path: Path
    largest_timestamp: int
    source: TimestampSource
    verdict: Verdict


class TimeIndexStep(NamedTuple):
    """The time index entry that the search starts from; `slot` -1: none is early enough, or there is no index to trust."""

    path: Path
    slot: int
    entries: int
    timestamp: int
    offset: int


class OffsetIndexStep(NamedTuple):
    """The offset index entry for `target_offset`; `slot` -1: the segment's start."""

    path: Path
    target_offset: int
    slot: int
    entries: int
    offset: int
    position: int


class BatchesStep(NamedTuple):
    """Batches walked for the answer: `batches` headers in [start_position, end_position), `opened` of them looked into."""

    path: Path
    start_position: int
    end_position: int
    batches: int
    opened: int


class RecordStep(NamedTuple):
    """The record found, in the batch at `position`."""

    path: Path
    position: int
    base_offset: int
    last_offset: int
    offset: int
    timestamp: int


class KafkaStep(NamedTuple):
    """Apache Kafka's answer.

    It picks one segment (None: none is late enough), by the file's time where that has no timestamps; `offset` is what it
    finds there (-1: nothing).
    """

    base_offset: int | None
    source: TimestampSource
    offset: int
    timestamp: int


Step: TypeAlias = SegmentStep | TimeIndexStep | OffsetIndexStep | BatchesStep | RecordStep | KafkaStep


@dataclass(slots=True)
class Trace:
    """The steps of one search, in order, and the bytes that it read from all files: as many as without a trace.

    Bytes read to find Kafka's answer are not included.
    """

    steps: list[Step] = field(default_factory=list)
    bytes_read: int = 0

    def add(self, step: Step) -> None:
        """Take the next step."""
        self.steps.append(step)
