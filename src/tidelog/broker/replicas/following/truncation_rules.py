"""Where a follower cuts its log so that it continues its leader's (KIP-101, KIP-279, KIP-595).

`truncation_by_epoch`: the leader names an epoch and where its records end there: in an answer to a fetch (DivergingEpoch, from
Fetch 12 on), or to OffsetForLeaderEpoch:

| the leader's end | epoch | the follower's log has | cut to | is that all? |
|---|---|---|---|---|
| not known | - | - | the high watermark | yes |
| known | not known (OffsetForLeaderEpoch 0) | - | the leader's end | yes |
| known | known | that epoch | the smaller of both ends of that epoch | yes |
| known | known | an older one, and not that | its end of the older one | no: ask again with that |
| known | known | no epoch as old | the leader's end | yes |

Never above the follower's log end. Without any epoch of its own (formats before v2, an empty log) a follower asks nothing and
cuts to its high watermark.

`out_of_range`: the leader has no such offset:

| leader's end and start, the follower's end | what is done |
|---|---|
| leader's end < own end | cut to the leader's end: another leader was elected that has less (unclean) |
| leader's start > own end | the log is emptied, and starts over at the leader's start: the leader has deleted what is between |
| the follower's last epoch is above the leader's | that epoch is forgotten, and the log cut to its high watermark |
| else | kept: asked again |

`start_of_batch`: a log is never cut within a batch. The records before the offset in that batch would be removed too, and never
fetched again. Kafka cuts there, and cannot append what the leader sends next.

Kafka's AbstractFetcherThread. Nothing here changes a log.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog

UNDEFINED = -1
"""Stands for an epoch or an end that the leader does not know."""


class EpochEnds(Protocol):
    """The part of a follower's log that the rules need."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None: ...


class Truncation(NamedTuple):
    """Where to cut, and whether the log continues the leader's then."""

    offset: int
    is_complete: bool


def truncation_by_epoch(log: EpochEnds, epoch: int, end_offset: int) -> Truncation:
    """Return where to cut for what the leader says: its last epoch at or below ours, and where that ends there."""
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
    """The action for an offset that the leader does not have: at most one of the two."""

    truncate_to: int | None = None
    start_over_at: int | None = None


def out_of_range(own_end: int, leader_start: int, leader_end: int) -> OutOfRange:
    """Return what to do where a log ends at `own_end`, and the leader has [`leader_start`, `leader_end`)."""
    if leader_end < own_end:
        return OutOfRange(truncate_to=leader_end)
    if leader_start > own_end:
        return OutOfRange(start_over_at=leader_start)
    return OutOfRange()


def start_of_batch(log: PartitionLog, offset: int) -> int:
    """Return the start of the batch that has `offset` in it, `offset` itself where none has. Raises what reading raises.

    Messages of v0 and v1 do not say where a compressed set begins; a follower takes such a set whole, wherever it begins.
    """
    if not log.log_start_offset < offset < log.log_end_offset:
        return offset
    found = log.local.locate(offset, 1, min_one_message=True, max_offset=_end(log), include_aborted=False)
    if found.log is None:
        return offset
    header = found.log.first_batch(found.position)
    return min(offset, header.base_offset) if header is not None and header.magic == 2 else offset


def _end(log: PartitionLog) -> LogOffsetMetadata:
    return log.local.log_end_offset_metadata
