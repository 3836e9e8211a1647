"""The events that a partition's log reports to its owner when they occur.

| event | reported when | used by |
|---|---|---|
| `segment_finished` | a segment gets no more records: it rolled, or compaction has put it in place | `time_map_writer` |
| `before_truncation` | the log is about to be truncated | compaction, which stops working on it |
| `after_truncation` | the log was truncated | the cleaner's checkpoint |
| `before_removal` | the log's folder is about to be renamed for removal | compaction |
| `went_offline` | the log no longer accepts writes | code that reports it to clients |

`LogEvents` itself ignores all events: it is for logs without an owner. `log_manager` creates the subclass that handles them.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.model import TopicPartition
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments


class ReportingLog(Protocol):
    """The part of a log's interface that listeners need."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def segments(self) -> LogSegments: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_offline(self) -> bool: ...


class LogEvents:
    """Handles the events of logs. Subclasses override the methods that they need. Methods must not raise, and must not change the
    log.
    """

    def segment_finished(self, log: ReportingLog, segment: LogSegment) -> None:
        """Called when `segment` of `log` gets no more records."""

    def before_truncation(self, log: ReportingLog) -> None:
        """Called when `log` is about to be truncated."""

    def after_truncation(self, log: ReportingLog) -> None:
        """Called when `log` has been truncated."""

    def before_removal(self, key: TopicPartition) -> None:
        """Called when a partition is about to be removed."""

    def went_offline(self, log: ReportingLog) -> None:
        """Called when `log` has met an I/O error and gone offline."""


NO_EVENTS = LogEvents()
