"""A log as a list of segment boundaries, without files, for the rules that the engine lacks. Retention is the engine's.

Appends, checks and a copy to another broker are replayed in order of time. `rolling_rules` decides about rolling. The engine's
own rule, `storage.partition.retention.due`, decides about deletion, with the timestamp that the retention rule selects:

| retention rule | a segment's timestamp | from |
|---|---|---|
| `LARGEST` | the largest of its messages | KIP-33; Kafka; the engine |
| `LAST` | that of its last message | KIP-32 |
| `FILE_TIME` | the clock when its file was last written | before KIP-33 |

A copy (`copied_ms`) appends the existing messages on a broker with new files: it keeps timestamps, but not file times.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from studies.policies.rolling_rules import OpenSegment, RollingRule, waited_ms
from studies.policies.scenarios import CHECK_MS, END_MS, RETENTION_MS, SEGMENT_MS
from studies.workload import EPOCH_MS, Int64s
from tidelog.config import LogConfig
from tidelog.storage.partition.retention import SegmentFacts, due

NEVER = 2**62


class RetentionRule(enum.Enum):
    """The time from which a segment's age counts."""

    LARGEST = "largest timestamp"
    LAST = "last message's timestamp"
    FILE_TIME = "file's last modification"


@dataclass
class _Segment:
    base: int
    open: OpenSegment
    end: int
    last_ms: int
    written_ms: int

    def timestamp(self, rule: RetentionRule) -> int:
        if rule is RetentionRule.LARGEST:
            return self.open.largest_ms
        return self.last_ms if rule is RetentionRule.LAST else self.written_ms


@dataclass
class _Playback:
    rolling: RollingRule
    retention: RetentionRule
    segment_ms: int
    config: LogConfig
    segments: list[_Segment] = field(default_factory=list)
    end: int = 0

    def append(self, index: int, timestamp: int, now_ms: int) -> None:
        active = self.segments[-1] if self.segments else None
        if active is None or waited_ms(self.rolling, active.open, timestamp, now_ms) > self.segment_ms:
            # The log, and so its first segment, is created before its first message arrives.
            made_ms = now_ms if self.end else EPOCH_MS
            self.segments.append(_Segment(index, OpenSegment.begin(timestamp, made_ms), index + 1, timestamp, now_ms))
        else:
            active.open = active.open.grown(timestamp)
            active.end, active.last_ms, active.written_ms = index + 1, timestamp, now_ms
        self.end = index + 1

    def check(self, now_ms: int) -> int:
        """Delete the expired segments; return the log start."""
        last = len(self.segments) - 1
        facts = [SegmentFacts(one.base, one.end, one.end - one.base, at == last) for at, one in enumerate(self.segments)]
        timestamps = {one.base: one.timestamp(self.retention) for one in self.segments}
        going = due(
            facts,
            self.config,
            now_ms=now_ms,
            high_watermark=self.end,
            log_start_offset=0,
            largest_timestamp=timestamps.__getitem__,
        )
        del self.segments[: len(going)]
        return self.segments[0].base if self.segments else self.end


def play(
    rolling: RollingRule,
    retention: RetentionRule,
    timestamps: Int64s,
    arrival_ms: Int64s,
    *,
    retention_ms: int = RETENTION_MS,
    segment_ms: int = SEGMENT_MS,
    check_ms: int = CHECK_MS,
    until_ms: int = END_MS,
    copied_ms: int | None = None,
) -> Int64s:
    """Return when each message is deleted (ms), `NEVER` if it is not deleted before the end. The broker's clock is correct."""
    log = _Playback(rolling, retention, segment_ms, LogConfig(retention_ms=retention_ms))
    stamps, arrivals = timestamps.tolist(), arrival_ms.tolist()
    gone = np.full(len(stamps), NEVER, np.int64)
    start = index = 0
    for now_ms in range(EPOCH_MS + check_ms, until_ms + 1, check_ms):
        while index < len(stamps) and arrivals[index] < now_ms:
            log.append(index, stamps[index], arrivals[index])
            index += 1
        if copied_ms is not None and copied_ms <= now_ms:
            log.segments.clear()
            for copied in range(start, index):
                log.append(copied, stamps[copied], copied_ms)
            copied_ms = None
        if log.segments:
            first, start = start, max(start, log.check(now_ms))
            gone[first:start] = now_ms
    return gone
