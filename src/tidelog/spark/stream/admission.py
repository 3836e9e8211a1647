"""Decides how many of the available records a batch takes. Pure functions of numbers and times, without access to logs.

| limit | a batch ends |
|---|---|
| maxOffsetsPerTrigger | after this many offsets, in proportion to the partitions' backlogs; no partition is skipped forever |
| maxBytesPerTrigger | after about this many uncompressed bytes; see `within_bytes` |
| maxTimePerTrigger | in each partition, before the first record that reaches the batch's end time; see `TimeLimit` |
| minOffsetsPerTrigger | (a smaller batch waits, up to maxTriggerDelay after the last one) |

With several limits, the smallest applies. Every batch takes at least one offset if any is available, so a stream always
progresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

K = TypeVar("K")

WINDOW_OFFSETS = 100
"""How many offsets are checked to find the current time of a partition: more than one, because any single one may be wrong."""


def share(available: Mapping[K, int], limit: int, turn: int = 0) -> dict[K, int]:
    """Return how many of each partition's `available` offsets to take so that they sum to `limit`, or all of them if they are
    fewer.

    The shares are proportional to the backlogs, rounded down. The remainder goes first to partitions that would get nothing,
    starting with partition number `turn` (so that each turn prefers other partitions), then to partitions that lost most by
    rounding. The sum is exactly `limit`.
    """
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    shares = {key: count * limit // total for key, count in available.items()}
    left = limit - sum(shares.values())
    empty = [key for key, count in available.items() if count and not shares[key]]
    first = turn % len(empty) if empty else 0
    rest = sorted((key for key in available if shares[key]), key=lambda key: -(available[key] * limit % total))
    for key in [*empty[first:], *empty[:first], *rest][:left]:
        shares[key] += 1
    return shares


def within_bytes(available: Mapping[K, int], bytes_each: Mapping[K, float], limit_bytes: int) -> int | None:
    """Return how many of the `available` offsets make about `limit_bytes`, at least one; None if all of them are smaller.

    `bytes_each` is the approximate size of an offset in each partition. If `share` distributes that number of offsets and the
    estimates are right, the batch has about that many bytes.
    """
    total_bytes = sum(count * bytes_each.get(key, 0.0) for key, count in available.items())
    if total_bytes <= limit_bytes:
        return None
    return max(1, int(sum(available.values()) * limit_bytes / total_bytes))


class Window(NamedTuple):
    """The next records of a partition: offsets, and timestamps (epoch ms, -1 none). `after` is their end."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    behind: int


class TimeLimit:
    """At most `span_ms` of the log's time in a batch.

    A batch's **end time** is `span_ms` after the oldest next record of all partitions; in each partition the batch ends before
    the first record that reaches it. So partitions that are far apart in time are read in step, the earliest first, and the
    batches of a replay resemble those of the original days. The "next records" of a partition are its next `WINDOW_OFFSETS`.
    Three rules handle times that are out of order:

    | a record among the next records that is | |
    |---|---|
    | older than the previous batch's end (late), or without a timestamp | is included, and does not move the end time back |
    | newer than later ones of its partition | is included with these, and does not move the end time ahead |
    | in the future | counts as now, so that no partition waits for it |

    The last `span_ms` before now have no limit: a stream that has caught up reads everything.
    """

    def __init__(self, span_ms: int) -> None:
        self.span_ms = span_ms
        self._end_ms = self._before_ms = 0

    def ends(self, windows: Mapping[K, Window], now_ms: int) -> tuple[int, dict[K, int]] | None:
        """Return the next batch's end time (epoch ms), and for each of its partitions a minimum end offset.

        A partition's part of the batch ends at the first record, at or after its minimum end offset, that reaches the end time.
        None means that everything may be read.
        """
        heads = {key: self._head(window, now_ms) for key, window in windows.items()}
        ahead = [time_ms for time_ms, _ in heads.values() if time_ms is not None]
        if ahead:
            end_ms = min(ahead) + self.span_ms
        elif heads and self._end_ms:
            end_ms = self._end_ms
        else:
            return None
        if end_ms > now_ms:
            return None
        self._before_ms, self._end_ms = self._end_ms, end_ms
        return end_ms, {key: least for key, (time_ms, least) in heads.items() if time_ms is None or time_ms < end_ms}

    def cut(self) -> None:
        """Record that the batch did not reach its end time, so that the records it left are not treated as late."""
        self._end_ms = self._before_ms

    def _head(self, window: Window, now_ms: int) -> tuple[int | None, int]:
        """Return the time of a partition's next records, and the offset after the record that sets it. The time is None
        if all are late.
        """
        ahead = [
            (timestamp, offset)
            for offset, timestamp in zip(window.offsets, window.timestamps, strict=True)
            if timestamp >= self._end_ms
        ]
        if not ahead:
            return None, window.behind
        timestamp, offset = min(ahead)
        return min(timestamp, now_ms), offset + 1


class TriggerDelay:
    """Whether a batch waits for more records: minOffsetsPerTrigger and maxTriggerDelay. Times are of a monotonic clock."""

    def __init__(self, min_offsets: int | None, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def waits(self, available: int, now_ms: int) -> bool:
        """Whether to wait for more than the available number of offsets. If not, a batch begins now. A query's first
        batch never waits.
        """
        is_enough = self._min_offsets is None or available >= self._min_offsets
        if not is_enough and self._last_ms is not None and now_ms - self._last_ms < self._max_delay_ms:
            return True
        self._last_ms = now_ms
        return False
