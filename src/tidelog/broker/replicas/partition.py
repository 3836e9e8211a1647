"""A partition's replica on this broker, with a leader's knowledge of the other replicas (Kafka's Partition; KIP-497, KIP-841).

The controller decides on the leader and the ISR. Its metadata records have a partition epoch and a leader epoch. A record with a
lower partition or leader epoch is stale and ignored. A record with a higher leader epoch makes the replica a leader or follower.
Any other record changes only the replicas and the ISR.

| a leader | when, or why |
|---|---|
| stores its epoch at its log end | it begins to lead: followers need it to find where to truncate |
| advances the high watermark to the smallest log end of the *maximal* ISR | it appends, a follower fetches, the ISR changes |
| … including followers that have just caught up and may join | otherwise they might never reach it |
| … but not while fewer are in sync than `min.insync.replicas` | |
| proposes a follower for the ISR | the follower's log end reaches the high watermark *and* the start of the leader's epoch |
| proposes to remove a follower from the ISR | the follower has not been caught up for `replica.lag.time.max.ms` |

One proposal is pending at a time, until the controller answers. The maximal ISR is the committed ISR plus the follower
that a pending proposal adds, because that follower may be elected as soon as the controller accepts the proposal. A follower that
the proposal removes counts until the proposal is committed.

| the controller's answer | the proposal is |
|---|---|
| the new ISR, in this leader epoch, with a partition epoch that is not lower | committed |
| INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED: it was not applied | dropped |
| FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID, … | pending until the metadata changes |
| any other error | retried |

Unlike in Kafka, a record with the partition epoch in which the proposal was made leaves the proposal pending, because the record
only repeats an earlier answer. If the proposal were dropped, the high watermark could pass a follower that the controller is
just adding.

Does no I/O: time is an argument (monotonic seconds), and proposals go to a function. Not
thread-safe.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import NamedTuple

from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.replicas.remote_replica import RemoteReplica
from tidelog.metadata.records import NO_LEADER, PartitionRecord
from tidelog.model import TopicPartition
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.transitions import Transitions, checked, name_of
from tidelog.wire.error_codes import ErrorCode

NO_EPOCH = -1


class ReplicaState(enum.Enum):
    """The states of this broker's replica of a partition."""

    FOLLOWER = "Follower"
    LEADER = "Leader"
    OFFLINE = "Offline"


TRANSITIONS: Transitions[ReplicaState | None] = {
    None: {
        ReplicaState.FOLLOWER: "its log exists, and another broker leads, or none",
        ReplicaState.LEADER: "its log exists, and this broker leads",
        ReplicaState.OFFLINE: "its log cannot be created or loaded",
    },
    ReplicaState.FOLLOWER: {
        ReplicaState.FOLLOWER: "a newer leader epoch: another leader, or none",
        ReplicaState.LEADER: "a newer leader epoch: this broker leads",
        ReplicaState.OFFLINE: "its log disappeared from the disk",
        None: "it is deleted, or moved to other brokers",
    },
    ReplicaState.LEADER: {
        ReplicaState.LEADER: "a newer leader epoch: this broker still leads",
        ReplicaState.FOLLOWER: "a newer leader epoch: another leader, or none",
        ReplicaState.OFFLINE: "its log disappeared from the disk",
        None: "it is deleted, or moved to other brokers",
    },
    ReplicaState.OFFLINE: {
        ReplicaState.FOLLOWER: "its log exists again, and another broker leads, or none",
        ReplicaState.LEADER: "its log exists again, and this broker leads",
        None: "it is deleted, or moved to other brokers",
    },
}


class IsrChange(NamedTuple):
    """A proposal to the controller: a new ISR, with the broker epoch of each replica's last fetch (-1 if unknown)."""

    key: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    added: int | None
    """The follower that the proposal adds; None if it removes followers."""


class CommittedIsr(NamedTuple):
    """The partition's current state according to the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Applied(NamedTuple):
    """What applying a metadata record has changed."""

    is_new_epoch: bool
    """Whether the record began a new leader epoch."""
    has_advanced: bool
    """Whether the high watermark has moved."""


_DROPPED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_AWAITS_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Partition:
    """A replica on this broker. It calls `propose` with each ISR proposal; pass the controller's results to `isr_answered`."""

    def __init__(
        self,
        key: TopicPartition,
        node_id: int,
        brokers: MetadataPlane,
        max_lag_s: float,
        propose: Callable[[Partition, IsrChange], None],
    ) -> None:
        self.key = key
        self.log: PartitionLog | None = None
        """The replica's log; None while the replica is offline."""
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The committed in-sync replicas, including this broker's; followers do not use it."""
        self.pending: IsrChange | None = None
        self.followers: dict[int, RemoteReplica] = {}
        """On a leader: all other replicas."""
        self.epoch_start_offset: int | None = None
        """The log end at the time when this broker began to lead in its epoch."""
        self._node_id = node_id
        self._brokers = brokers
        self._max_lag_s = max_lag_s
        self._propose = propose
        self._state: ReplicaState | None = None

    def __repr__(self) -> str:
        role = f"{name_of(self._state)} of {self.leader_epoch}.{self.partition_epoch}"
        return f"<{self.key.topic}-{self.key.partition} {role}, ISR {self.isr}>"

    # --- asking

    @property
    def state(self) -> ReplicaState | None:
        return self._state

    @property
    def is_leader(self) -> bool:
        return self._state is ReplicaState.LEADER

    @property
    def maximal_isr(self) -> Collection[int]:
        """The committed ISR, plus the replica that a pending proposal adds."""
        pending = self.pending
        return self.isr if pending is None or pending.added is None else (*self.isr, pending.added)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas` requires. A partition with fewer replicas than that
        requires all of them.
        """
        log = self.log
        return log is not None and len(self.isr) < min(log.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def commit_code(self) -> ErrorCode:
        """NONE or NOT_ENOUGH_REPLICAS_AFTER_APPEND, for a producer with acks=all whose records are now committed."""
        log = self.log
        assert log is not None
        if len(self.maximal_isr) < min(log.config.min_insync_replicas, len(self.followers) + 1):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all live replicas, as the leader knows it (KIP-107)."""
        assert self.log is not None
        starts = (one.log_start_offset for one in self.followers.values() if self._brokers.is_alive(one.broker_id))
        return min((self.log.log_start_offset, *starts))

    def refusal(self, current_leader_epoch: int = NO_EPOCH, *, by_any_replica: bool = False) -> ErrorCode:
        """Return NONE if this replica may answer a request with this leader epoch (-1 if the request has none), otherwise the
        error code. With `by_any_replica`, followers may answer as well.
        """
        if self.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            is_old = current_leader_epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if by_any_replica or self._state is ReplicaState.LEADER:
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- changes by the controller

    def apply(self, record: PartitionRecord, log: PartitionLog, now_s: float) -> Applied | None:
        """Apply a metadata record. Return the changes, or None if the record changes nothing. Raises what storing an epoch in the
        log raises.
        """
        if record.partition_epoch < self.partition_epoch or record.leader_epoch < self.leader_epoch:
            return None
        was_led, before = self._state is ReplicaState.LEADER, self.leader_epoch
        is_led = record.leader == self._node_id
        state = ReplicaState.LEADER if is_led else ReplicaState.FOLLOWER
        is_new_epoch = record.leader_epoch > before or self._state is not state
        if is_led and is_new_epoch:
            # Also in a reloaded log: the epoch may not have reached the disk, and followers need it.
            # Raises if the disk fails: then nothing has changed, and the record must be applied again.
            log.note_leader_epoch_soon(record.leader_epoch, log.log_end_offset)
        self.log = log
        if is_new_epoch:
            self._state = checked(TRANSITIONS, self._state, state, f"{self.key}")
        pending = self.pending
        if pending is not None and (record.leader_epoch > before or record.partition_epoch > pending.partition_epoch):
            self.pending = None
        self.leader_id, self.leader_epoch, self.partition_epoch = record.leader, record.leader_epoch, record.partition_epoch
        self.replicas = tuple(record.replicas)
        if not is_led:
            self.isr = ()
            self.followers.clear()
            self.epoch_start_offset = None
            return Applied(is_new_epoch, has_advanced=False)
        self.isr = tuple(record.isr)
        self._take_followers(record)
        if is_new_epoch:
            self.epoch_start_offset = end = log.log_end_offset
            for replica in self.followers.values():
                in_sync = replica.broker_id in self.isr
                replica.begin_epoch(end, now_s, is_in_sync=in_sync, is_new_leader=not was_led)
        return Applied(is_new_epoch, self.advance(now_s))

    def _take_followers(self, record: PartitionRecord) -> None:
        known, self.followers = self.followers, {}
        for broker_id in record.replicas:
            if broker_id != self._node_id:
                self.followers[broker_id] = known.get(broker_id) or RemoteReplica(broker_id)

    def go_offline(self) -> None:
        """Continue without the log, which can no longer be read or written. Idempotent.

        A pending proposal stays pending, because the log may be back before the controller answers. As long as the proposal is
        pending, a record counts as committed only if the follower that it adds has the record.
        """
        if self._state is not ReplicaState.OFFLINE:
            self._leave(ReplicaState.OFFLINE)

    def delete(self) -> None:
        """Give up the replica, because this broker is no longer one of the partition's replicas."""
        self._leave(None)
        self.pending = None

    def _leave(self, state: ReplicaState | None) -> None:
        self._state = checked(TRANSITIONS, self._state, state, f"{self.key}")
        self.log = None
        self.leader_id = NO_LEADER
        self.isr = self.replicas = ()
        self.epoch_start_offset = None
        self.followers.clear()

    # --- the high watermark

    def advance(self, now_s: float) -> bool:
        """Advance a leader's high watermark as far as possible. Return whether it moved."""
        log = self.log
        assert log is not None
        if len(self.isr) < log.config.min_insync_replicas and self.is_under_min_isr:
            return False
        end = log.log_end_offset_metadata
        high_watermark = log.high_watermark
        # Records that must be flushed first do not count for this replica yet, although followers may have them.
        lowest = LogOffsetMetadata(log.recovery_point) if log.is_flush_awaited else end
        maximal = self.maximal_isr
        for broker_id, replica in self.followers.items():
            if replica.end.message_offset < lowest.message_offset and (
                broker_id in maximal or self._is_joining(replica, end.message_offset, now_s)
            ):
                lowest = replica.end
                if lowest.message_offset <= high_watermark:
                    return False
        if lowest.message_offset <= high_watermark:
            return False
        log.update_high_watermark(lowest)
        return True

    def _is_joining(self, replica: RemoteReplica, end_offset: int, now_s: float) -> bool:
        return replica.is_caught_up(end_offset, now_s, self._max_lag_s) and self._is_eligible(replica)

    def _is_eligible(self, replica: RemoteReplica) -> bool:
        epoch = replica.broker_epoch
        return epoch is not None and self._brokers.is_eligible(replica.broker_id, epoch)

    # --- followers

    def follower_fetched(
        self,
        broker_id: int,
        broker_epoch: int,
        end: LogOffsetMetadata,
        log_start_offset: int,
        leader_end_offset: int,
        now_s: float,
    ) -> bool:
        """Process a follower's fetch at offset `end`. Return whether the high watermark moved.

        `leader_end_offset` is this log's end when the fetch arrived. Brokers without a replica are ignored.
        """
        replica = self.followers.get(broker_id)
        if replica is None:
            return False
        before = replica.end.message_offset
        replica.fetched(end, log_start_offset, broker_epoch, leader_end_offset, now_s)
        if broker_id not in self.isr and self.pending is None:
            self._maybe_expand(replica)
        return before != end.message_offset and self.advance(now_s)

    def _maybe_expand(self, replica: RemoteReplica) -> None:
        log, start = self.log, self.epoch_start_offset
        assert log is not None and start is not None
        end = replica.end.message_offset
        if end >= log.high_watermark and end >= start and self._is_eligible(replica):
            self._change_isr((*self.isr, replica.broker_id), added=replica.broker_id)

    def maybe_shrink(self, now_s: float) -> None:
        """Propose to remove followers from the ISR that have not been caught up for `replica.lag.time.max.ms`. Call it
        periodically.
        """
        if self._state is not ReplicaState.LEADER or self.pending is not None:
            return
        late = self.late_replicas(now_s)
        if late:
            self._change_isr(tuple(one for one in self.isr if one not in late), added=None)

    def late_replicas(self, now_s: float) -> list[int]:
        """Return the in-sync followers that have not been caught up for `replica.lag.time.max.ms`."""
        assert self.log is not None
        end = self.log.log_end_offset
        late = []
        for broker_id in self.isr:
            if broker_id != self._node_id:
                replica = self.followers.get(broker_id)
                if replica is None or not replica.is_caught_up(end, now_s, self._max_lag_s):
                    late.append(broker_id)
        return late

    def _change_isr(self, isr: tuple[int, ...], added: int | None) -> None:
        epochs = []
        for broker_id in isr:
            replica = self.followers.get(broker_id)
            epoch = None if replica is None else replica.broker_epoch
            epochs.append((broker_id, NO_EPOCH if epoch is None else epoch))
        self.pending = IsrChange(self.key, self.leader_epoch, self.partition_epoch, tuple(epochs), added)
        self._propose(self, self.pending)

    def isr_answered(self, change: IsrChange, answer: CommittedIsr | ErrorCode, now_s: float) -> bool:
        """Process the controller's result for a proposal. Return whether the high watermark moved.

        A result for a proposal that is no longer pending is ignored.
        """
        if self.pending is not change:
            return False
        if isinstance(answer, ErrorCode):
            if answer in _DROPPED:
                self.pending = None
            elif answer not in _AWAITS_METADATA:
                self._propose(self, change)
            return False
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return False
        if self._state is not ReplicaState.LEADER:
            return False  # The partition is offline; the metadata will say so.
        self.pending = None
        self.isr = answer.isr
        self.partition_epoch = answer.partition_epoch
        return self.advance(now_s)
