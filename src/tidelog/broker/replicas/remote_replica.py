"""A leader's state of one follower: how far it has come, and when it was last caught up (Kafka's Replica and ReplicaState).

| | moves with |
|---|---|
| `end` | each fetch: below the offset that it asks for, the follower has everything |
| `last_caught_up_s` | a fetch that asks for the leader's log end, as it is now, or as it was when the fetch before came |

The second counts so that a follower is in sync that always comes a few records late, as others keep being appended.

Times are of a monotonic clock, in seconds. Pure.
"""

from __future__ import annotations

from tidelog.storage.partition.offset_metadata import LogOffsetMetadata

NEVER_S = float("-inf")
UNKNOWN_END = LogOffsetMetadata(-1)


class RemoteReplica:
    """A follower of a partition that this broker leads. It has told nothing yet: every offset is -1, `broker_epoch` is None."""

    __slots__ = ("_last_fetch_s", "_leader_end", "broker_epoch", "broker_id", "end", "last_caught_up_s", "log_start_offset")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.end = UNKNOWN_END
        """Its log end; its place is that in the leader's log."""
        self.log_start_offset = -1
        self.broker_epoch: int | None = None
        """The epoch of its broker's registration, as its last fetch says: -1 where it does not."""
        self.last_caught_up_s = NEVER_S
        self._last_fetch_s = NEVER_S
        self._leader_end = 0

    def __repr__(self) -> str:
        return f"RemoteReplica({self.broker_id}, end={self.end.message_offset})"

    def fetched(
        self, end: LogOffsetMetadata, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_s: float
    ) -> None:
        """Note a fetch from `end` on, that came when the leader's log ended at `leader_end_offset`."""
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
        """Whether it has everything, or had everything at most `max_lag_s` ago."""
        return self.end.message_offset == leader_end_offset or now_s - self.last_caught_up_s <= max_lag_s

    def begin_epoch(self, leader_end_offset: int, now_s: float, *, is_in_sync: bool, is_new_leader: bool) -> None:
        """Start over in a new leader epoch; a leader that leads on keeps what it knows of offsets.

        An in-sync follower has as much time from now on as if it had just caught up.
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
