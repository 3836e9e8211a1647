"""Which segments may go: because the log starts after them, because it is too large, because they are too old (spec §8).

| rule, in this order | when | a segment goes while |
|---|---|---|
| log start | always | the next segment's base ≤ log start offset |
| size | cleanup.policy has delete, retention.bytes ≥ 0 | the log without it is still at least retention.bytes |
| time | cleanup.policy has delete, retention.ms ≥ 0 | now - its largest timestamp > retention.ms |

and for each of them: the oldest first, up to the first that stays; never past the high watermark; never an empty last segment.
A single record of next year therefore keeps its segment and all after it.

A segment's largest timestamp is what its time index says last. Before that word lets a segment go, the headers of the batches
after the index's last entry are read, and a larger timestamp wins: an index that lost its tail must not cost records. Where no
record has a timestamp, the file's time counts, as in Kafka.

The rules are pure, over `SegmentFacts`, so that the command line can say the same for any folder; `delete_old_segments` does
it, for `PartitionLog`.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.config import LogConfig
from tidelog.errors import CorruptDataError
from tidelog.storage.partition.log_state import LogState
from tidelog.storage.segment.segment import LogSegment

logger = logging.getLogger("tidelog.storage")


class Reason(enum.Enum):
    """Why a segment goes."""

    LOG_START = "below the log start"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class SegmentFacts(NamedTuple):
    """What the rules have to know of a segment."""

    base_offset: int
    end_offset: int
    """The next segment's base; the log end, for the last one."""
    size_bytes: int
    is_last: bool


class Due(NamedTuple):
    """A segment that may go, and why."""

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
    """Return the segments that may go, oldest first, `limit` of them at most.

    `largest_timestamp(base_offset)` (ms) is asked only where time decides.
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
    """Return what the rules have to know of a log's segments."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    last = len(segments) - 1
    return [
        SegmentFacts(segment.base_offset, end, segment.size_bytes, index == last)
        for index, (segment, end) in enumerate(zip(segments, ends, strict=True))
    ]


def largest_timestamp_checked(segment: LogSegment, needed_ms: int) -> int:
    """Return a segment's largest timestamp (ms), or its file's time where no record has one.

    What the time index says is believed if it reaches `needed_ms`; else the batches after its last entry are looked at as well.
    """
    largest = segment.largest_record_timestamp
    if largest is not None and largest >= needed_ms:
        return largest
    try:
        checked = segment.check_largest_timestamp().timestamp
    except CorruptDataError as error:
        logger.warning("%s: its largest timestamp is taken from its index: %s", segment.log.path, error)
        return segment.largest_timestamp
    if largest is not None and checked > largest:
        logger.warning("%s: ends at %d, a batch after that at %d", segment.time_index.path, largest, checked)
    return checked if checked >= 0 else segment.log.modified_ms


def delete_old_segments(state: LogState, limit: int | None = None) -> int:
    """Delete what is due, `limit` segments at most; return how many that were. Raises LogOfflineError."""
    with state.writing("delete old segments"):
        segments = state.segments.values()
        now_ms = state.clock.now_ms()
        by_base = {segment.base_offset: segment for segment in segments}
        needed_ms = now_ms - state.config.retention_ms
        going = due(
            facts_of(segments, state.log_end_offset),
            state.config,
            now_ms=now_ms,
            high_watermark=state.high_watermark,
            log_start_offset=state.log_start_offset,
            largest_timestamp=lambda base: largest_timestamp_checked(by_base[base], needed_ms),
            limit=limit,
        )
        if going:
            for facts, reason in going:
                logger.info("%s: segment %d goes (%s)", state.directory, facts.base_offset, reason.value)
            _delete(state, [by_base[facts.base_offset] for facts, _ in going])
        return len(going)


def _delete(state: LogState, going: list[LogSegment]) -> None:
    """Delete the first segments of a log; there is always one left to be appended to."""
    if len(going) == len(state.segments):
        state.roll()
    following = state.segments.higher(going[-1].base_offset)
    assert following is not None
    increment_log_start_offset(state, following.base_offset)
    state.local.remove_and_delete_segments(going)
    state.delete_producer_snapshots(going)


def increment_log_start_offset(state: LogState, offset: int) -> bool:
    """Move the log start forward to `offset`; False if it is there or after already. The caller has checked the offset."""
    marks = state.watermarks
    if offset <= marks.log_start_offset:
        return False
    marks.set_log_start_offset(offset)
    state.leader_epochs.truncate_from_start(offset)
    state.producer_state.on_log_start_offset_incremented(offset)
    marks.update_first_unstable_offset()
    return True
