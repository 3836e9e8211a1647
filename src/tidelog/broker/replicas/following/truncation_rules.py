"""Where a follower truncates its log to match its leader's (KIP-101, KIP-279, KIP-595).

`truncation_by_epoch`: the leader returns an epoch and its end offset, in a fetch response (DivergingEpoch, since Fetch 12) or
in an OffsetForLeaderEpoch response:

| the leader's end | epoch | the follower's log has | truncate to | done? |
|---|---|---|---|---|
| unknown | - | - | the high watermark | yes |
| known | unknown (OffsetForLeaderEpoch 0) | - | the leader's end | yes |
| known | known | that epoch | the smaller of the two ends of that epoch | yes |
| known | known | only an older one | the end of the older one in the follower's log | no: ask again with that epoch |
| known | known | neither that epoch nor an older one | the leader's end | yes |

The offset is never above the follower's log end. A follower without epochs (formats before v2, an empty log) does not ask, and
truncates to its high watermark.

`out_of_range` applies if the leader lacks the follower's fetch offset:

| leader's end and start, the follower's end | action |
|---|---|
| leader's end < own end | truncate to the leader's end: a leader with a shorter log was elected (unclean) |
| leader's start > own end | empty the log and restart at the leader's start: the leader has deleted the records in between |
| the follower's last epoch is above the leader's | remove that epoch, and truncate to the high watermark |
| otherwise | change nothing: ask again |

`start_of_batch`: a log is never truncated within a batch. Otherwise the records of the batch below the offset would be removed
as well, and never fetched again. Kafka truncates within the batch, and cannot append the batch that the leader sends next.

The rules are those of Kafka's AbstractFetcherThread. Nothing here changes a log.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.storage.partition.partition_log import PartitionLog

UNDEFINED = -1
"""The value of an epoch or end offset that the leader does not know."""


class Truncation(NamedTuple):
    """The offset to truncate to, and whether the follower can fetch afterwards because the log then matches the leader's."""

    offset: int
    is_complete: bool


def truncation_by_epoch(log: PartitionLog, epoch: int, end_offset: int) -> Truncation:
    """Return where to truncate. `epoch` is the leader's last epoch at or below the follower's, and `end_offset` is where that
    epoch ends.
    """
    if end_offset == UNDEFINED:
        return Truncation(min(log.high_watermark, log.log_end_offset), True)
    own = None if epoch == UNDEFINED else log.end_offset_for_epoch(epoch)
    if own is None:
        return Truncation(min(end_offset, log.log_end_offset), True)
    own_epoch, own_end = own
    if own_epoch != epoch:
        return Truncation(min(own_end, log.log_end_offset), False)
    return Truncation(min(own_end, end_offset, log.log_end_offset), True)


class OutOfRange(NamedTuple):
    """What to do if the leader lacks the fetch offset. At most one field is set."""

    truncate_to: int | None = None
    start_over_at: int | None = None


def out_of_range(own_end: int, leader_start: int, leader_end: int) -> OutOfRange:
    """Return what to do with a log that ends at `own_end` if the leader's log has [`leader_start`, `leader_end`)."""
    if leader_end < own_end:
        return OutOfRange(truncate_to=leader_end)
    if leader_start > own_end:
        return OutOfRange(start_over_at=leader_start)
    return OutOfRange()


def start_of_batch(log: PartitionLog, offset: int) -> int:
    """Return the start of the batch that contains `offset`, or `offset` itself if no batch does. Raises what reading a log
    raises.

    Messages of v0 and v1 do not say where a compressed message set begins; a follower appends such a set whole, wherever it
    begins.
    """
    if not log.log_start_offset < offset < log.log_end_offset:
        return offset
    found = log.local.locate(offset, 1, min_one_message=True, max_offset=log.local.log_end_offset_metadata, include_aborted=False)
    if found.log is None:
        return offset
    header = found.log.first_batch(found.position)
    return min(offset, header.base_offset) if header is not None and header.magic == 2 else offset
