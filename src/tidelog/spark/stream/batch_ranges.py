"""Determines which offsets a batch reads, and which are lost. These are pure functions of positions and the logs' current bounds.

| partition | reads from | lost |
|---|---|---|
| continues | its position | offsets below the log start, or after the log's end (truncated, or a new topic of the same name) |
| new since the last batch | 0 | offsets below the log start |
| gone | nothing | its unread offsets |
| restarted (deleted and recreated) | its log start | the old partition's unread offsets |

With `failOnDataLoss` every loss is an error; without it, losses are logged and the stream continues. The first batch
after a partition's restart may have an end offset *below* its start offset. The checkpoint records this, so a batch that is
planned again after a crash reads the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from tidelog.errors import OffsetOutOfRangeError
from tidelog.model import MAX_OFFSET, TopicPartition
from tidelog.sources.source import Ends
from tidelog.spark.stream.offsets import Positions

MAX_NAMED = 5
"""The most losses that an error lists."""


class Reach(NamedTuple):
    """The offsets `[start_offset, end_offset)` of a partition that a batch may read. `position` is the stream's position, None in
    a new partition.
    """

    position: int | None
    start_offset: int
    end_offset: int

    @property
    def offsets(self) -> int:
        return self.end_offset - self.start_offset


def reaches(
    positions: Positions, spans: Mapping[TopicPartition, Ends], recreated: Set[TopicPartition]
) -> tuple[dict[TopicPartition, Reach], list[str]]:
    """Return the offsets that the next batch may read, and the losses, one sentence each.

    `recreated` has the partitions that are known to have been deleted and recreated. Offsets alone may not show this, because the
    new partition may have as many records as the old one by now.
    """
    found: dict[TopicPartition, Reach] = {}
    losses = [_gone(key, positions[key]) for key in sorted(positions.keys() - spans.keys())]
    for key, span in spans.items():
        position = positions.get(key)
        if position is None:
            losses += _below(key, 0, span, span.end_offset)
            found[key] = Reach(None, span.log_start_offset, span.end_offset)
        elif key in recreated or position > span.log_end_offset:
            losses.append(
                f"{_name(key)} ends at {span.log_end_offset}, but the stream was at {position}"
                + (
                    ": it was deleted and created again"
                    if key in recreated
                    else ": it was truncated, or deleted and created again"
                )
            )
            # This end is below the position (see the module's docstring). The next batch reads the remaining records.
            start, most = span.log_start_offset, position - 1
            if start >= most:
                start, most = position, MAX_OFFSET
            found[key] = Reach(position, start, max(start, min(span.end_offset, most)))
        else:
            losses += _below(key, position, span, span.end_offset)
            start = max(position, span.log_start_offset)
            found[key] = Reach(position, start, max(start, span.end_offset))
    return found, losses


def ends(reached: Mapping[TopicPartition, Reach], taken: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the position after a batch that takes `taken` offsets of each partition."""
    found: dict[TopicPartition, int] = {}
    for key, reach in reached.items():
        count = taken.get(key, 0)
        if count or (reach.position is None and not reach.offsets):
            found[key] = reach.start_offset + count
        elif reach.position is not None:
            found[key] = reach.position
    return found


def batch_ranges(
    start: Positions, end: Positions, spans: Mapping[TopicPartition, Ends], *, is_first: bool = False
) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
    """Return the offsets `[first, after)` that the batch between two positions reads, and the losses, one sentence each.

    `is_first` means that a query's first batch is planned again after a crash. Its start was looked up again and may be after its
    end; in that case the batch reads nothing.
    """
    found: dict[TopicPartition, tuple[int, int]] = {}
    losses: list[str] = []
    for key, stop in end.items():
        position, span = start.get(key), spans.get(key)
        if position == stop or (is_first and position is not None and stop < position):
            continue
        if span is None:
            losses.append(_gone(key, position or 0))
            continue
        first = position or 0
        if stop < first:
            first = span.log_start_offset
        losses += _below(key, first, span, stop)
        first = max(first, span.log_start_offset)
        if stop > max(first, span.log_end_offset):
            behind = max(first, span.log_end_offset)
            losses.append(f"{_name(key)} offsets [{behind}, {stop}), {stop - behind:,} in all: the log ends at {behind}")
        stop = min(stop, span.log_end_offset)
        if first < stop:
            found[key] = first, stop
    return found, losses


def loss(losses: list[str], place: str) -> OffsetOutOfRangeError:
    """Return an error that lists the losses."""
    more = f"; and {len(losses) - MAX_NAMED} more partitions" if len(losses) > MAX_NAMED else ""
    return OffsetOutOfRangeError(
        f"records were lost before the stream read them: {'; '.join(losses[:MAX_NAMED])}{more} "
        "(to continue without them, set failOnDataLoss=false)",
        path=place,
    )


def _below(key: TopicPartition, first: int, span: Ends, stop: int) -> list[str]:
    behind = min(span.log_start_offset, max(first, stop))
    if first >= behind:
        return []
    return [f"{_name(key)} offsets [{first}, {behind}), {behind - first:,} in all: the log starts at {span.log_start_offset}"]


def _gone(key: TopicPartition, position: int) -> str:
    return f"{_name(key)} has been deleted, and the stream was at {position}"


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"
