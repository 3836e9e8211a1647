"""Counts why segments rolled, and warns of settings that make them roll too often (KIP-32, KIP-33).

A segment rolls by event time. If producers' timestamps may be further apart than segment.ms, each bad one can roll a segment, in
the worst case one per batch, which causes many tiny segments and files. So these are counted:

| count, per log | |
|---|---|
| `rolled_by_time` | segments rolled by segment.ms |
| `one_batch_segments` | segments with a single batch |

A timestamp limit that is set, but above segment.ms, is logged once per topic. `PartitionLog` owns the counts.
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
    """Warn if the topic accepts timestamps that are further off than segment.ms. Warn once per topic, limit and segment.ms."""
    limits_ms = [ms for ms in (config.timestamp_before_max_ms, config.timestamp_after_max_ms) if ms != INT64_MAX]
    limit_ms = max(limits_ms, default=0)
    if config.message_timestamp_type != CREATE_TIME or limit_ms <= config.segment_ms:
        return
    key = (data_folder, topic, limit_ms, config.segment_ms)
    if key not in _warned:
        _warned.add(key)
        logger.warning(
            "topic %s accepts timestamps that are %d ms off, more than segment.ms = %d: each of them may roll a segment",
            topic,
            limit_ms,
            config.segment_ms,
        )
