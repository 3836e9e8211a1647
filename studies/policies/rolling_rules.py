"""When a segment rolls by time: the rules that the documents name, side by side.

| rule | waited, more than segment.ms | from |
|---|---|---|
| `CREATE_TIME_OF_SEGMENT` | the clock now - the clock when the segment was made | before KIP-33 |
| `FIRST_MESSAGE` | the timestamp to be appended - the first one of the segment | KIP-33's rolling section; Kafka; the engine |
| `LARGEST_TIMESTAMP` | the clock now - the largest timestamp of the segment | KIP-33's Public Interfaces |
| `CLOCK_AND_FIRST_MESSAGE` | the clock now - the first timestamp of the segment | KIP-32 |

Each is looked at when something is appended, as all versions of Kafka do. The timestamps are of either type. KIP-32 proposes the
last rule with LogAppendTime ("first LogAppendTime"), and the segments of one message that it fears with CreateTime come from that
rule. A timestamp here is one append's: its largest; of a segment's first append too, as in Kafka.

Everything is pure. Times are ms.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from studies.workload import Int64s


class RollingRule(enum.Enum):
    """What the age of an active segment is counted from."""

    CREATE_TIME_OF_SEGMENT = "segment's create time"
    FIRST_MESSAGE = "first message's timestamp"
    LARGEST_TIMESTAMP = "largest timestamp"
    CLOCK_AND_FIRST_MESSAGE = "clock since the first message's timestamp"


class OpenSegment(NamedTuple):
    """What the rules have to know of the active segment, which has at least one append."""

    first_ms: int
    """The first append's timestamp."""
    largest_ms: int
    created_ms: int
    """What the clock showed when the segment was made: at the first append, but for the first segment of a log."""

    @classmethod
    def begin(cls, timestamp: int, now_ms: int) -> OpenSegment:
        """Return a segment with one append."""
        return cls(timestamp, timestamp, now_ms)

    def grown(self, timestamp: int) -> OpenSegment:
        """Return the segment with one append more."""
        return self if timestamp <= self.largest_ms else self._replace(largest_ms=timestamp)


def waited_ms(rule: RollingRule, segment: OpenSegment, timestamp: int, now_ms: int) -> int:
    """Return how long the active segment has waited when `timestamp` is about to be appended, by a rule; may be negative."""
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
    """Return the indices of the appends that begin a segment, by a rule; `clock_ms` is the broker's clock at each append.

    The log, and so its first segment, was made at `made_ms` by that clock; by default with the first append.
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
    """How a rule has cut a log. Spans are of arrival, in truth."""

    segments: int
    one_message: int
    """Segments of a single append, but for the last segment, which is not finished."""
    smallest_span_ms: int
    median_span_ms: float
    largest_span_ms: int
    longest_active_ms: int
    """From a segment's first append to the one that rolled it; of the last segment, to the last append."""
    worst_off_ms: int
    """How far a segment's active time was from segment.ms, at worst: too short or too long; the last one's, if too long."""


def segmentation(starts: Int64s, arrival_ms: Int64s, segment_ms: int) -> Segmentation:
    """Return what is counted of segments that begin at `starts`. Spans are those of finished segments, where there are any."""
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
