"""Forecasts when retention (`retention`) deletes each segment of a log, and which record keeps it until then.

A segment is deleted by time when its largest timestamp is older than retention.ms, but not before all earlier segments. So the
record that keeps a segment may be in an earlier one. A record of next year keeps its segment, and everything after it, until next
year plus retention.ms; the forecast names such a record. Segments above the high watermark stay, whatever their age.

`forecast` uses the largest timestamps; `forecast_by` uses the caller's times, so that other rules can be compared.

The functions only read, and accept a log of any folder. The largest timestamps come from `reader.segment_time`, which checks the
index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.config import LogConfig
from tidelog.reader import segment_time
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.storage.partition.retention import Reason, SegmentFacts, due


class Keeper(NamedTuple):
    """The record that keeps a segment: the one with the largest timestamp in the segment, or in an earlier segment."""

    base_offset: int
    """The keeper's segment."""
    offset: int | None
    """The record; None if the segment has no timestamps, so that its file's time counts."""
    timestamp: int
    """Epoch ms."""


class Forecast(NamedTuple):
    """A segment, and when it is deleted."""

    base_offset: int
    next_offset: int
    size_bytes: int
    keeper: Keeper | None
    """None if time does not decide."""
    own: Keeper | None
    """The segment's own record with the largest timestamp; None for an empty active segment."""
    goes_ms: int | None
    """When the next check after its expiry deletes it (epoch ms); now if it has expired; None if retention does not delete it."""
    reason: str
    """Why it is deleted, or why not."""


NEVER_EMPTY = "the active segment, empty"
ABOVE_HIGH_WATERMARK = "above the high watermark"
NO_TIME_LIMIT = "no retention.ms"
NOT_DELETED = "cleanup.policy has no delete"


def forecast(log: Log, config: LogConfig, now_ms: int, *, high_watermark: int | None = None) -> list[Forecast]:
    """Return the forecast of each segment, oldest first; the high watermark is the log's unless it is given.

    Raises what reading the log raises.
    """
    facts = facts_of_log(log)
    own = [largest(segment, one) for segment, one in zip(log.segments, facts, strict=True)]
    return forecast_by(log, facts, own, config, now_ms, high_watermark=high_watermark)


def facts_of_log(log: Log) -> list[SegmentFacts]:
    """Return the facts about a log's segments that the rules need, without their times."""
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    last = len(segments) - 1
    return [
        SegmentFacts(segment.base_offset, end, segment.end_position if index == last else segment.size_bytes, index == last)
        for index, (segment, end) in enumerate(zip(segments, ends, strict=True))
    ]


def forecast_by(
    log: Log,
    facts: Sequence[SegmentFacts],
    own: Sequence[Keeper | None],
    config: LogConfig,
    now_ms: int,
    *,
    high_watermark: int | None = None,
) -> list[Forecast]:
    """Return the forecast of each segment by the caller's times. `own` has each segment's own record, None only for an empty last
    segment.
    """
    if high_watermark is None:
        high_watermark = log.log_end_offset if log.high_watermark is None else log.high_watermark
    timestamps = {one.base_offset: keeper.timestamp for one, keeper in zip(facts, own, strict=True) if keeper is not None}
    going = {
        one.facts.base_offset: one.reason
        for one in due(
            facts,
            config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=log.log_start_offset,
            largest_timestamp=lambda base: timestamps.get(base, now_ms),
        )
    }
    found: list[Forecast] = []
    latest: Keeper | None = None
    for one, keeper in zip(facts, own, strict=True):
        reason = going.get(one.base_offset)
        if reason in (Reason.LOG_START, Reason.SIZE):
            found.append(Forecast(*one[:3], None, keeper, now_ms, reason.value))
            continue
        if keeper is not None and (latest is None or keeper.timestamp > latest.timestamp):
            latest = keeper
        found.append(_by_time(one, keeper, latest, config, now_ms, high_watermark))
    return found


def _by_time(
    one: SegmentFacts, own: Keeper | None, latest: Keeper | None, config: LogConfig, now_ms: int, high_watermark: int
) -> Forecast:
    place = one[:3]
    if not config.is_deleted:
        return Forecast(*place, None, own, None, NOT_DELETED)
    if one.is_last and one.size_bytes == 0:
        return Forecast(*place, None, own, None, NEVER_EMPTY)
    if config.retention_ms < 0:
        return Forecast(*place, None, own, None, NO_TIME_LIMIT)
    assert latest is not None, "a segment with batches has a largest timestamp"
    if high_watermark < one.end_offset:
        return Forecast(*place, latest, own, None, ABOVE_HIGH_WATERMARK)
    # Older than retention.ms, not equally old: one millisecond more.
    return Forecast(*place, latest, own, max(now_ms, latest.timestamp + config.retention_ms + 1), Reason.TIME.value)


def largest(segment: Segment, facts: SegmentFacts) -> Keeper | None:
    """Return a segment's record with the largest timestamp, or its file's time if no record has one.

    Return None if the last segment is empty. Any other empty segment was emptied by a compaction; its file's time counts, as in
    Kafka.
    """
    if facts.size_bytes == 0:
        return None if facts.is_last else Keeper(segment.base_offset, None, segment.modified_ms)
    try:
        largest_timestamp = segment_time.largest_timestamp(segment)
        if largest_timestamp.source == "none":
            return Keeper(segment.base_offset, None, segment.modified_ms)
        found = segment_time.find_max_timestamp(segment, largest_timestamp, segment.base_offset)
        return Keeper(
            segment.base_offset, largest_timestamp.offset if found is None else found.offset, largest_timestamp.timestamp
        )
    finally:
        segment.close()
