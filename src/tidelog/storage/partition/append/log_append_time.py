"""The append time of a log, which never decreases (KIP-32; spec §11).

| message.timestamp.type | append time |
|---|---|
| CreateTime | none; the clock's "now" is used for the limits on producers' timestamps |
| LogAppendTime | the later of now and the last append time |
| LogAppendTime, ``tidelog.log.append.time.monotonic=false`` | now, as in Kafka, so that times decrease if the clock is set back |

The last append time comes from the last batch in the log with the LogAppendTime flag; a follower's batches raise it. After a
start or a truncation, the first append that needs the last append time searches for it, from the log's end backward. The search
ends where no append time later than now is possible. Producers' timestamps do not count: otherwise a CreateTime of next year
would freeze a log whose message.timestamp.type is changed. If the clock is more than a minute behind, a warning is logged, and
not again until the clock has caught up.

Each `PartitionLog` has a `LogAppendTime`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidelog.records.batch import LOG_APPEND_TIME, BatchHeader
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments

logger = logging.getLogger("tidelog.storage")

FAR_BEHIND_MS = 60_000


class LogAppendTime:
    """Computes the append times of one log. `name` is the log's name, for the warning."""

    def __init__(self, segments: LogSegments, name: Callable[[], str]) -> None:
        self._segments = segments
        self._name = name
        self._last_ms: int | None = None
        self._is_reported = False

    def next_ms(self, now_ms: int, *, monotonic: bool) -> int:
        """Return the append time at `now_ms` (both in ms). Raises what reading the log's end raises."""
        if not monotonic:
            return now_ms
        last_ms = self._last_ms
        if last_ms is None:
            last_ms = self._last_ms = last_append_time(self._segments, now_ms)
            if last_ms is None:
                return now_ms
        if last_ms <= now_ms:
            self._is_reported = False
            return now_ms
        if last_ms - now_ms > FAR_BEHIND_MS and not self._is_reported:
            self._is_reported = True
            logger.warning(
                "%s: the clock is %d s behind the last append time, %d, which is used until the clock catches up",
                self._name(),
                (last_ms - now_ms) // 1000,
                last_ms,
            )
        return last_ms

    def on_leader_append(self, append_time_ms: int) -> None:
        """Record the append time of a leader's write."""
        self._last_ms = append_time_ms

    def on_follower_append(self, headers: Iterable[BatchHeader]) -> None:
        """Raise the last append time to the newest append time of the leader's batches."""
        for header in headers:
            if header.timestamp_type == LOG_APPEND_TIME:
                if self._last_ms is None:
                    return  # It will be read from the log when needed, with these batches.
                self._last_ms = max(self._last_ms, header.max_timestamp)

    def forget(self) -> None:
        """Drop the last append time, because batches were removed from the log's end. The time is read from the log when next
        needed.
        """
        self._last_ms = None


def last_append_time(segments: LogSegments, now_ms: int) -> int | None:
    """Return the time of the last batch with the LogAppendTime flag (ms).

    Returns None if there is no such batch, or if the batch was not searched for because its time cannot be later than `now_ms`.
    The log is read backward, segment by segment. In a LogAppendTime log the last segment has the answer; further segments are
    read only if their largest timestamp is after `now_ms`.
    """
    found = None
    newest_first = list(segments.values())[::-1]
    for index, segment in enumerate(newest_first):
        if segment.size_bytes == 0:
            continue
        found = _last_flagged(segment.batches_from(segment.offset_index.last_offset))
        if found is None and _reach_past(newest_first[index:], now_ms):
            found = _last_flagged(segment.batches())
            if found is None:
                continue
        break
    return found


def _reach_past(segments: Iterable[LogSegment], now_ms: int) -> bool:
    return any(segment.max_timestamp_and_offset_so_far.timestamp > now_ms for segment in segments)


def _last_flagged(headers: Iterable[BatchHeader]) -> int | None:
    found = None
    for header in headers:
        if header.timestamp_type == LOG_APPEND_TIME:
            found = header.max_timestamp
    return found
