"""The steps of a search by time as typed records: `explain` prints them, and tests count them.

A search appends its steps to a `Trace` that the caller passes. Without a `Trace`, nothing is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tidelog.formats.paths.file_path import FilePath

TimestampSource = Literal["index", "log", "summary", "mtime", "none"]
"""The source of a segment's largest timestamp: the last time index entry, later batch headers, the segments' summary, the file's
modification time, or nothing.
"""

Verdict = Literal["below log start", "no timestamps", "too early", "searched", "no match", "match"]


class SegmentStep(NamedTuple):
    """The search considered a segment.

    `largest_timestamp` is -1 if the segment has no timestamps. In the segment that is searched, it may be a lower bound if the
    last time index entry is already at or after the target.
    """

    base_offset: int
    path: FilePath
    largest_timestamp: int
    source: TimestampSource
    verdict: Verdict


class TimeIndexStep(NamedTuple):
    """The time index entry from which the search starts. `slot` is -1 if no entry is early enough or the index is unusable."""

    path: FilePath
    slot: int
    entries: int
    timestamp: int
    offset: int


class OffsetIndexStep(NamedTuple):
    """The offset index entry for `target_offset`. `slot` is -1 if the walk begins at the segment's start."""

    path: FilePath
    target_offset: int
    slot: int
    entries: int
    offset: int
    position: int


class BatchesStep(NamedTuple):
    """The walk through the batches in [start_position, end_position). `batches` is the number of headers read, `opened` the
    number of batches whose records were read.
    """

    path: FilePath
    start_position: int
    end_position: int
    batches: int
    opened: int


class RecordStep(NamedTuple):
    """The record that was found, in the batch at `position`."""

    path: FilePath
    position: int
    base_offset: int
    last_offset: int
    offset: int
    timestamp: int


class KafkaStep(NamedTuple):
    """Apache Kafka's answer.

    Kafka picks one segment, by the file's modification time if the segment has no timestamps. `base_offset` is None if no segment
    is late enough. `offset` is Kafka's result in that segment, -1 for none.
    """

    base_offset: int | None
    source: TimestampSource
    offset: int
    timestamp: int


Step: TypeAlias = SegmentStep | TimeIndexStep | OffsetIndexStep | BatchesStep | RecordStep | KafkaStep


@dataclass(slots=True)
class Trace:
    """The steps of one search, in order, and the number of bytes read from all files. A trace does not change what is read.

    Bytes read to find Kafka's answer are not included.
    """

    steps: list[Step] = field(default_factory=list)
    bytes_read: int = 0

    def add(self, step: Step) -> None:
        """Append a step."""
        self.steps.append(step)
