"""What a partition's log reports to its owner, at the moment it happens.

| event | reported | to whom that matters |
|---|---|---|
| `segment_finished` | a segment gets no more records: rolled, or put in place by compaction | `time_map_writer` |
| `before_truncation` | the log is about to be cut | compaction, which must not be in the middle of it |
| `after_truncation` | the log was cut | the cleaner's checkpoint |
| `before_removal` | its folder is about to be renamed, to be removed | compaction |
| `went_offline` | nothing is written to the log any more | what reports it to clients |

`LogEvents` itself listens to nothing: it is what a log has that nobody keeps. `log_manager` makes the one that does.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.model import TopicPartition
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments


class ReportingLog(Protocol):
    """What a listener needs of a log."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def segments(self) -> LogSegments: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_offline(self) -> bool: ...


class LogEvents:
    """Subclasses override the events that they want. They must not raise, and must not change the log."""

    def segment_finished(self, log: ReportingLog, segment: LogSegment) -> None:
        """`segment` of `log` gets no more records."""

    def before_truncation(self, log: ReportingLog) -> None:
        """`log` is about to be truncated."""

    def after_truncation(self, log: ReportingLog) -> None:
        """`log` was truncated."""

    def before_removal(self, key: TopicPartition) -> None:
        """A partition is about to be removed."""

    def went_offline(self, log: ReportingLog) -> None:
        """`log` has met an I/O error."""


NO_EVENTS = LogEvents()
