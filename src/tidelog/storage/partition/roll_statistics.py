"""Counts why segments rolled, and warns of settings that make them roll too often (KIP-32, KIP-33).

A segment rolls by event time. If producers' timestamps may be further apart than segment.ms, each batch with a wrong timestamp
can roll a segment, which causes many tiny segments and files. Therefore two numbers are counted:

| count, per log | |
|---|---|
| `rolled_by_time` | segments rolled by segment.ms |
| `one_batch_segments` | segments with a single batch |

A timestamp limit that is set, but above segment.ms, is logged once per topic. Each `PartitionLog` has a `RollStatistics`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tidelog.config import CREATE_TIME, INT64_MAX, LogConfig
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

_warned: set[tuple[Path, str, int, int]] = set()


@dataclass
class RollStatistics:
    """Counts since the log was opened."""

    rolled_by_time: int = 0
    one_batch_segments: int = 0

    def note_roll(self, segment: LogSegment, *, by_time: bool) -> None:
        """Count a segment that is about to become inactive."""
        self.rolled_by_time += by_time
        first = segment.log.first_batch()
        self.one_batch_segments += first is not None and first.size == segment.size_bytes


def warn_of_wide_limits(config: LogConfig, data_folder: Path, topic: str) -> None:
    """Log a warning if the topic accepts timestamps that differ from the current time by more than segment.ms. Warn once per
    topic, limit and segment.ms.
    """
    limits_ms = [ms for ms in (config.timestamp_before_max_ms, config.timestamp_after_max_ms) if ms != INT64_MAX]
    limit_ms = max(limits_ms, default=0)
    if config.message_timestamp_type != CREATE_TIME or limit_ms <= config.segment_ms:
        return
    key = (data_folder, topic, limit_ms, config.segment_ms)
    if key not in _warned:
        _warned.add(key)
        logger.warning(
            "topic %s accepts timestamps up to %d ms from the current time, more than segment.ms = %d: each such record can roll "
            "a segment; lower message.timestamp.before.max.ms and message.timestamp.after.max.ms, or raise segment.ms",
            topic,
            limit_ms,
            config.segment_ms,
        )
