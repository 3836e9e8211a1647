"""Determines how many of the available records a batch takes. These are pure functions of numbers and times, without access to
logs.

| limit | a batch ends |
|---|---|
| maxOffsetsPerTrigger | after this many offsets, in proportion to the partitions' backlogs; no partition is skipped forever |
| maxBytesPerTrigger | after about this many uncompressed bytes; see `within_bytes` |
| maxTimePerTrigger | in each partition, before the first record at or after the batch's end time; see `TimeLimit` |
| minOffsetsPerTrigger | (a smaller batch waits, up to maxTriggerDelay after the last batch) |

With several limits, the smallest applies. Every batch takes at least one offset if any is available, so a stream always makes
progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

K = TypeVar("K")

WINDOW_OFFSETS = 100
"""How many offsets are checked to find the current time of a partition. A single record's timestamp may be wrong."""


def share(available: Mapping[K, int], limit: int, turn: int = 0) -> dict[K, int]:
    """Return how many of each partition's `available` offsets to take, so that the sum is `limit`. If fewer are available, take
    all.

    The shares are proportional to the backlogs, rounded down. The remainder goes first to partitions that would get nothing,
    starting with partition number `turn`, so that each turn prefers different partitions. Then it goes to the partitions that
    lost most by rounding. The sum is exactly `limit`.
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
    """Return how many of the `available` offsets have about `limit_bytes` together, at least one. Return None if all available
    offsets have fewer bytes.

    `bytes_each` is the approximate size of an offset in each partition. If `share` distributes that number of offsets and the
    estimates are right, the batch has about that many bytes.
    """
    total_bytes = sum(count * bytes_each.get(key, 0.0) for key, count in available.items())
    if total_bytes <= limit_bytes:
        return None
    return max(1, int(sum(available.values()) * limit_bytes / total_bytes))


class Window(NamedTuple):
    """The next records of a partition: their offsets, and their timestamps (epoch ms, -1 for none). `after` is the offset after
    them.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    behind: int


class TimeLimit:
    """Limits a batch to `span_ms` of the log's time.

    A batch's **end time** is `span_ms` after the oldest next record of all partitions. In each partition the batch ends before
    the first record at or after the end time. So partitions that are far apart in time are read in step, the earliest first, and
    the batches of a replay resemble the batches of the original days. The "next records" of a partition are its next
    `WINDOW_OFFSETS`. Three rules handle times that are out of order:

    | a next record that is | |
    |---|---|
    | older than the previous batch's end (late), or without a timestamp | is included, and does not move the end time back |
    | newer than later records of its partition | is included with these, and does not move the end time ahead |
    | in the future | counts as now, so that no partition waits for it |

    The last `span_ms` before now are not limited: a stream that has caught up reads everything.
    """

    def __init__(self, span_ms: int) -> None:
        self.span_ms = span_ms
        self._end_ms = self._before_ms = 0

    def ends(self, windows: Mapping[K, Window], now_ms: int) -> tuple[int, dict[K, int]] | None:
        """Return the next batch's end time (epoch ms), and for each of its partitions a minimum end offset.

        In each partition the batch ends before the first record that is at or after the minimum end offset and at or after the
        end time. None means that everything may be read.
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
        """Record that a different limit ended the batch before its end time, so that the records left unread do not count as
        late.
        """
        self._end_ms = self._before_ms

    def _head(self, window: Window, now_ms: int) -> tuple[int | None, int]:
        """Return the time of a partition's next records, and the offset after the record that determines this time. The time is
        None if all next records are late.
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
    """Decides whether a batch waits for more records, by minOffsetsPerTrigger and maxTriggerDelay. Times come from a monotonic
    clock.
    """

    def __init__(self, min_offsets: int | None, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def waits(self, available: int, now_ms: int) -> bool:
        """Return whether to wait until more offsets are available. If not, a batch begins now. A query's first batch never
        waits.
        """
        is_enough = self._min_offsets is None or available >= self._min_offsets
        if not is_enough and self._last_ms is not None and now_ms - self._last_ms < self._max_delay_ms:
            return True
        self._last_ms = now_ms
        return False
