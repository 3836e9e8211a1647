"""When a segment rolls by time: the documents' rules, side by side.

| rule | it rolls if this exceeds segment.ms | from |
|---|---|---|
| `CREATE_TIME_OF_SEGMENT` | the clock now - the clock when the segment was created | before KIP-33 |
| `FIRST_MESSAGE` | the timestamp to be appended - the segment's first timestamp | KIP-33's rolling section; Kafka; the engine |
| `LARGEST_TIMESTAMP` | the clock now - the largest timestamp of the segment | KIP-33's Public Interfaces |
| `CLOCK_AND_FIRST_MESSAGE` | the clock now - the first timestamp of the segment | KIP-32 |

Each rule is checked at an append, as in all versions of Kafka. The timestamps may be of either type. KIP-32 proposes the last
rule with LogAppendTime ("first LogAppendTime"); with CreateTime it would cause the segments of one message that KIP-32 warns of.
The timestamp of an append is its largest one, even for a segment's first append, as in Kafka.

All functions are pure. Times are in ms.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from studies.workload import Int64s


class RollingRule(enum.Enum):
    """The time from which an active segment's age counts."""

    CREATE_TIME_OF_SEGMENT = "segment's create time"
    FIRST_MESSAGE = "first message's timestamp"
    LARGEST_TIMESTAMP = "largest timestamp"
    CLOCK_AND_FIRST_MESSAGE = "clock since the first message's timestamp"


class OpenSegment(NamedTuple):
    """The state of the active segment that the rules need. It has at least one append."""

    first_ms: int
    """The timestamp of the first append."""
    largest_ms: int
    created_ms: int
    """The clock when the segment was created: at its first append, except for a log's first segment."""

    @classmethod
    def begin(cls, timestamp: int, now_ms: int) -> OpenSegment:
        """Return a segment with one append."""
        return cls(timestamp, timestamp, now_ms)

    def grown(self, timestamp: int) -> OpenSegment:
        """Return the segment after one more append."""
        return self if timestamp <= self.largest_ms else self._replace(largest_ms=timestamp)


def waited_ms(rule: RollingRule, segment: OpenSegment, timestamp: int, now_ms: int) -> int:
    """Return the active segment's age by a rule when `timestamp` is about to be appended; it may be negative."""
    if rule is RollingRule.CREATE_TIME_OF_SEGMENT:
        return now_ms - segment.created_ms
    if rule is RollingRule.FIRST_MESSAGE:
        return timestamp - segment.first_ms
    if rule is RollingRule.LARGEST_TIMESTAMP:
        return now_ms - segment.largest_ms
    return now_ms - segment.first_ms


def segment_starts(
    rule: RollingRule, timestamps: Int64s, clock_ms: Int64s, segment_ms: int, made_ms: int | None = None
) -> Int64s:
    """Return the indices of the appends that begin a segment by a rule. `clock_ms` is the broker's clock at each append.

    `made_ms` is when the log, and so its first segment, was created by that clock; the default is the first append.
    """
    starts: list[int] = []
    segment: OpenSegment | None = None
    for index, (timestamp, now_ms) in enumerate(zip(timestamps.tolist(), clock_ms.tolist(), strict=True)):
        if segment is None or waited_ms(rule, segment, timestamp, now_ms) > segment_ms:
            segment = OpenSegment.begin(timestamp, now_ms if segment is not None or made_ms is None else made_ms)
            starts.append(index)
        else:
            segment = segment.grown(timestamp)
    return np.array(starts, np.int64)


class Segmentation(NamedTuple):
    """The segments that a rule makes of a log. Spans are in true arrival time."""

    segments: int
    one_message: int
    """The number of segments of a single append, without the last segment, which is not finished."""
    smallest_span_ms: int
    median_span_ms: float
    largest_span_ms: int
    longest_active_ms: int
    """The spans from a segment's first append to the append that rolled it; for the last segment, to the last append."""
    worst_off_ms: int
    """The largest difference of a segment's active time from segment.ms. The last segment counts only if it is too long."""


def segmentation(starts: Int64s, arrival_ms: Int64s, segment_ms: int) -> Segmentation:
    """Return the statistics of segments that begin at `starts`. Spans are those of finished segments, if there are any."""
    ends = np.append(starts[1:], len(arrival_ms))
    spans = arrival_ms[ends - 1] - arrival_ms[starts]
    finished = spans[:-1] if len(spans) > 1 else spans
    active = np.append(arrival_ms[starts[1:]], arrival_ms[-1]) - arrival_ms[starts]
    off = np.append(np.abs(active[:-1] - segment_ms), max(0, active[-1] - segment_ms))
    return Segmentation(
        len(starts),
        int(((ends - starts)[:-1] == 1).sum()),
        int(finished.min()),
        float(np.median(finished)),
        int(finished.max()),
        int(active.max()),
        int(off.max()),
    )
