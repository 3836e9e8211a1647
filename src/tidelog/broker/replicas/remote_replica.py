"""What a leader knows about one follower: its log end, and when it was last caught up (Kafka's Replica and ReplicaState).

| | changes with |
|---|---|
| `end` | each fetch, because the follower has everything below the fetch offset |
| `last_caught_up_s` | a fetch at the leader's current log end, or at the log end at the time of the previous fetch |

The log end of the previous fetch counts, so that a follower stays in sync although it is always a few records behind ongoing
appends.

Times are of a monotonic clock, in seconds. Does no I/O.
"""

from __future__ import annotations

from tidelog.storage.partition.offset_metadata import LogOffsetMetadata

NEVER_S = float("-inf")
UNKNOWN_END = LogOffsetMetadata(-1)


class RemoteReplica:
    """A follower of a partition that this broker leads. Before its first fetch every offset is -1, and `broker_epoch` is None."""

    __slots__ = ("_last_fetch_s", "_leader_end", "broker_epoch", "broker_id", "end", "last_caught_up_s", "log_start_offset")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.end = UNKNOWN_END
        """The follower's log end, as a position in the leader's log."""
        self.log_start_offset = -1
        self.broker_epoch: int | None = None
        """The broker epoch in the follower's last fetch, -1 if the fetch had none."""
        self.last_caught_up_s = NEVER_S
        self._last_fetch_s = NEVER_S
        self._leader_end = 0

    def __repr__(self) -> str:
        return f"RemoteReplica({self.broker_id}, end={self.end.message_offset})"

    def fetched(
        self, end: LogOffsetMetadata, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_s: float
    ) -> None:
        """Process a fetch at offset `end` that arrived when the leader's log ended at `leader_end_offset`."""
        if end.message_offset >= leader_end_offset:
            self.last_caught_up_s = max(self.last_caught_up_s, now_s)
        elif end.message_offset >= self._leader_end:
            self.last_caught_up_s = max(self.last_caught_up_s, self._last_fetch_s)
        self.end = end
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._leader_end = max(leader_end_offset, self._leader_end)
        self._last_fetch_s = now_s

    def is_caught_up(self, leader_end_offset: int, now_s: float, max_lag_s: float) -> bool:
        """Whether the follower has all of the leader's records, or had all of them at most `max_lag_s` ago."""
        return self.end.message_offset == leader_end_offset or now_s - self.last_caught_up_s <= max_lag_s

    def begin_epoch(self, leader_end_offset: int, now_s: float, *, is_in_sync: bool, is_new_leader: bool) -> None:
        """Begin a new leader epoch. If the same broker continues to lead, keep the known offsets. An in-sync follower counts as
        caught up now.
        """
        self.last_caught_up_s = now_s if is_in_sync else NEVER_S
        if is_new_leader:
            self.end = UNKNOWN_END
            self.log_start_offset = -1
            self.broker_epoch = None
            self._leader_end = -1
            self._last_fetch_s = NEVER_S
        else:
            self._leader_end = leader_end_offset
            self._last_fetch_s = now_s if is_in_sync else NEVER_S
