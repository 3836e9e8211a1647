"""Decides which segments retention deletes: below the log start, by size, by time (spec §8).

| rule, in this order | applies | a segment is deleted while |
|---|---|---|
| log start | always | the next segment's base ≤ log start offset |
| size | cleanup.policy has delete, retention.bytes ≥ 0 | the log without it is still at least retention.bytes |
| time | cleanup.policy has delete, retention.ms ≥ 0 | now - its largest timestamp > retention.ms |

Each rule deletes the oldest segments first, up to the first segment that stays; never past the high watermark, and never an empty
last segment. A single record with a timestamp of next year therefore keeps its segment and all later ones.

A segment's largest timestamp is the last entry of its time index. Before a segment is deleted because of that entry, the headers
of the batches after the entry are read, and a larger timestamp counts: an index that lost its tail must not cause the loss of
records. If no record has a timestamp, the file's modification time counts, as in Kafka.

The rules are pure functions of `SegmentFacts`, so that the command line can apply them to any folder; `removals` deletes.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.config import LogConfig
from tidelog.errors import CorruptDataError
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


class Reason(enum.Enum):
    """Why a segment is deleted."""

    LOG_START = "below the log start"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class SegmentFacts(NamedTuple):
    """The facts about a segment that the rules need."""

    base_offset: int
    end_offset: int
    """The next segment's base; the log end, for the last one."""
    size_bytes: int
    is_last: bool


class Due(NamedTuple):
    """A segment to delete, and why."""

    facts: SegmentFacts
    reason: Reason


def due(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    largest_timestamp: Callable[[int], int],
    limit: int | None = None,
) -> list[Due]:
    """Return the segments to delete, oldest first, at most `limit`.

    `largest_timestamp(base_offset)` (ms) is called only if time decides.
    """
    going: list[Due] = []

    def take(reason: Reason, breaches: Callable[[SegmentFacts], bool]) -> None:
        for facts in segments[len(going) :]:
            if len(going) == limit:
                return
            empty = facts.is_last and facts.size_bytes == 0
            if empty or high_watermark < facts.end_offset or not breaches(facts):
                return
            going.append(Due(facts, reason))

    take(Reason.LOG_START, lambda facts: not facts.is_last and facts.end_offset <= log_start_offset)
    if not config.is_deleted:
        return going
    if config.retention_bytes >= 0:
        excess = sum(facts.size_bytes for facts in segments[len(going) :]) - config.retention_bytes

        def too_large(facts: SegmentFacts) -> bool:
            nonlocal excess
            if excess < facts.size_bytes:
                return False
            excess -= facts.size_bytes
            return True

        take(Reason.SIZE, too_large)
    if config.retention_ms >= 0:
        take(Reason.TIME, lambda facts: now_ms - largest_timestamp(facts.base_offset) > config.retention_ms)
    return going


def facts_of(segments: Sequence[LogSegment], log_end_offset: int) -> list[SegmentFacts]:
    """Return the facts about a log's segments."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    last = len(segments) - 1
    return [
        SegmentFacts(segment.base_offset, end, segment.size_bytes, index == last)
        for index, (segment, end) in enumerate(zip(segments, ends, strict=True))
    ]


def largest_timestamp_checked(segment: LogSegment, needed_ms: int) -> int:
    """Return a segment's largest timestamp (ms), or its file's modification time if no record has a timestamp.

    The time index is trusted if its last timestamp is at least `needed_ms`; otherwise the batches after its last entry are
    checked.
    """
    largest = segment.largest_record_timestamp
    if largest is not None and largest >= needed_ms:
        return largest
    try:
        checked = segment.check_largest_timestamp().timestamp
    except CorruptDataError as error:
        logger.warning(
            "%s: using the time index's largest timestamp unchecked, because the segment is damaged: %s", segment.log.path, error
        )
        return segment.largest_timestamp
    if largest is not None and checked > largest:
        logger.warning(
            "%s: the last entry has timestamp %d, but a later batch has timestamp %d, which is used",
            segment.time_index.path,
            largest,
            checked,
        )
    return checked if checked >= 0 else segment.log.modified_ms


def due_segments(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    log_end_offset: int,
    limit: int | None = None,
) -> list[tuple[LogSegment, Reason]]:
    """Return the segments of a log to delete, each with the reason, oldest first, at most `limit`."""
    by_base = {segment.base_offset: segment for segment in segments}
    needed_ms = now_ms - config.retention_ms
    going = due(
        facts_of(segments, log_end_offset),
        config,
        now_ms=now_ms,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        largest_timestamp=lambda base: largest_timestamp_checked(by_base[base], needed_ms),
        limit=limit,
    )
    return [(by_base[facts.base_offset], reason) for facts, reason in going]
