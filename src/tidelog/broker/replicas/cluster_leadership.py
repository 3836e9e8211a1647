"""`Leadership` of a cluster member, from the metadata and the followers' progress (`Replicas`).

| the partition | requests to the leader only | requests to any replica |
|---|---|---|
| is led here, in the request's epoch | served | served |
| is followed here | NOT_LEADER_OR_FOLLOWER | served |
| is led or followed here, in an older or newer epoch | UNKNOWN_LEADER_EPOCH or FENCED_LEADER_EPOCH | the same |
| is offline here | KAFKA_STORAGE_ERROR | the same |
| has no replica here | NOT_LEADER_OR_FOLLOWER | the same |
| is not in the metadata | UNKNOWN_TOPIC_OR_PARTITION | the same |

As in Kafka, the epoch is checked before leadership. A follower's fetch with an older broker epoch than the follower's
registration gets NOT_LEADER_OR_FOLLOWER (KIP-903): the follower has restarted, and its log may be shorter now. Use only on the
event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from tidelog.broker.partitions.leadership import NO_EPOCH, Committed, Deleted, Flushed
from tidelog.broker.replicas.partition import Partition
from tidelog.broker.replicas.replica_selector import ReplicaView, preferred_replica
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.requests.listeners import Listener
from tidelog.metadata.records import NO_LEADER
from tidelog.model import TopicPartition
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode

_NONE = ErrorCode.NONE


class ClusterLeadership:
    """Decides which requests for a partition this cluster member may serve. `quota` is the leader's replication throttle. With
    `has_selector`, consumers are directed to replicas in their racks.
    """

    def __init__(
        self,
        replicas: Replicas,
        wake_fetches: Callable[[TopicPartition], None],
        when_flushed: Callable[[PartitionLog, Flushed], None],
        *,
        quota: ReplicationQuota,
        has_selector: bool,
    ) -> None:
        self._replicas = replicas
        self._plane = replicas.plane
        self._get = replicas.get
        self._wake_fetches = wake_fetches
        self._when_flushed = when_flushed
        self._quota = quota
        self._has_selector = has_selector

    # --- before the operation

    def epoch_of(self, key: TopicPartition) -> int:
        partition = self._get(key)
        return partition.leader_epoch if partition is not None and partition.is_leader else NO_EPOCH

    def leader_of(self, key: TopicPartition) -> tuple[int, int]:
        """Return a partition's leader and leader epoch: from the replica on this broker if there is one, otherwise from
        the metadata.
        """
        partition = self._get(key)
        if partition is not None and partition.log is not None:
            return partition.leader_id, partition.leader_epoch
        record = self._replicas.record(key)
        return (NO_LEADER, NO_EPOCH) if record is None else (record.leader, record.leader_epoch)

    def refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        partition = self._get(key)
        return self._why_missing(key) if partition is None else partition.refusal(current_leader_epoch)

    def reading_refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        partition = self._get(key)
        if partition is None:
            return self._why_missing(key)
        return partition.refusal(current_leader_epoch, by_any_replica=True)

    def follower_refusal(self, key: TopicPartition, current_leader_epoch: int, replica_id: int, replica_epoch: int) -> ErrorCode:
        partition = self._get(key)
        if partition is None:
            return self._why_missing(key)
        code = partition.refusal(current_leader_epoch)
        if code:
            return code
        if replica_id not in partition.followers:
            # The follower may be a new replica that this broker does not know yet.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_epoch != NO_EPOCH and self._plane.is_alive(replica_id):
            registered = self._plane.image.broker_epoch(replica_id)
            if registered is not None and registered > replica_epoch:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _NONE

    def check_in_sync(self, log: PartitionLog) -> ErrorCode:
        partition = self._get(log.topic_partition)
        if partition is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_ENOUGH_REPLICAS if partition.is_under_min_isr else _NONE

    def is_alone(self, log: PartitionLog) -> bool:
        """Whether this broker leads the partition and has its only replica."""
        partition = self._get(log.topic_partition)
        return partition is not None and partition.is_leader and len(partition.replicas) == 1

    def check_latest_known(self, log: PartitionLog) -> ErrorCode:
        partition = self._get(log.topic_partition)
        start = None if partition is None else partition.epoch_start_offset
        return _NONE if start is None or start <= log.high_watermark else ErrorCode.OFFSET_NOT_AVAILABLE

    def is_held_back(self, log: PartitionLog, replica_id: int) -> bool:
        if not self._is_throttled(log):
            return False
        partition = self._get(log.topic_partition)
        return partition is not None and replica_id not in partition.isr and self._quota.is_exceeded(monotonic())

    def sent_to_follower(self, log: PartitionLog, size_bytes: int) -> None:
        """Count bytes sent to a follower, if its partition is throttled. Bytes sent to in-sync replicas count as well."""
        if self._is_throttled(log):
            self._quota.record(size_bytes, monotonic())

    def _is_throttled(self, log: PartitionLog) -> bool:
        return self._quota.is_throttled(log.topic_partition, log.config.leader_replication_throttled_replicas)

    def preferred_replica(self, key: TopicPartition, client_rack: str, fetch_offset: int, listener: Listener) -> int | None:
        """Return an in-sync follower in the consumer's rack that has the offset. Return None if there is none, if the leader is
        in that rack, or if no replica selector is configured.
        """
        partition = self._get(key)
        if not self._has_selector or partition is None or not partition.is_leader:
            return None
        brokers = self._plane.image.brokers
        in_sync = [
            ReplicaView(
                one.broker_id, brokers[one.broker_id].rack, one.log_start_offset, one.end.message_offset, one.last_caught_up_s
            )
            for one in partition.followers.values()
            if one.broker_id in partition.isr and self._plane.endpoint(one.broker_id, listener.name) is not None
        ]
        me = brokers.get(self._plane.node_id)
        return preferred_replica(client_rack, None if me is None else me.rack, in_sync, fetch_offset)

    # --- after the operation

    def appended(self, log: PartitionLog) -> bool:
        partition = self._get(log.topic_partition)
        if log.is_flush_awaited:
            self._when_flushed(log, self._flushed)
        elif partition is not None and partition.is_leader:
            self._replicas.advance(partition)
        self._wake_fetches(log.topic_partition)
        return log.high_watermark >= log.log_end_offset

    def _flushed(self, log: PartitionLog, end: LogOffsetMetadata) -> None:
        partition = self._get(log.topic_partition)
        if partition is not None and partition.is_leader and partition.log is log:
            self._replicas.advance(partition)

    def when_committed(self, log: PartitionLog, end_offset: int, timeout_ms: int | None, done: Committed) -> bool:
        """Return True if everything below `end_offset` is committed and enough replicas are in sync. Otherwise return False, and
        call `done` with the result, now or later.
        """
        partition, code = self._led(log)
        if partition is None:
            done(code)
            return False
        if log.high_watermark >= end_offset:
            code = partition.commit_code
            if code:
                done(code)
            return not code
        self._replicas.committed.add(log.topic_partition, end_offset, timeout_ms, done)
        if log.is_flush_awaited:
            log.when_flushed(partial(self._flush_over, log.topic_partition))
        return False

    def _flush_over(self, key: TopicPartition, has_failed: bool) -> None:
        if has_failed:
            self._replicas.committed.end(key, ErrorCode.KAFKA_STORAGE_ERROR)

    def when_low_watermark(self, log: PartitionLog, offset: int, timeout_ms: int, done: Deleted) -> int | None:
        partition, code = self._led(log)
        if partition is None:
            done(code, -1)
            return None
        low_watermark = partition.low_watermark
        if low_watermark >= offset:
            return low_watermark
        self._replicas.deleted.add(log.topic_partition, offset, timeout_ms, partial(_deleted, partition, done))
        return None

    def _led(self, log: PartitionLog) -> tuple[Partition | None, ErrorCode]:
        """Return a log's partition and ErrorCode.NONE if this broker leads it, otherwise None and the error code."""
        partition = self._get(log.topic_partition)
        if partition is None or partition.log is not log:
            return None, self._why_missing(log.topic_partition)
        code = partition.refusal()
        return (None if code else partition), code

    def follower_fetched(
        self, log: PartitionLog, replica_id: int, replica_epoch: int, offset: LogOffsetMetadata, log_start_offset: int
    ) -> None:
        self._replicas.follower_fetched(log.topic_partition, replica_id, replica_epoch, offset, log_start_offset, monotonic())

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        self._replicas.on_return(log, has_lost)

    # --- epochs

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return the last epoch at or below `epoch` in a log, with its end offset. A leader's log contains its current epoch."""
        return None if epoch < 0 else log.end_offset_for_epoch(epoch)

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        """Return `known`, the epoch found in the log, unchanged: a leader stores its epoch in the log when it begins to lead."""
        return known

    # --- inside

    def _why_missing(self, key: TopicPartition) -> ErrorCode:
        is_known = self._replicas.record(key) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _deleted(partition: Partition, done: Deleted, code: ErrorCode) -> None:
    done(code, -1 if code or partition.log is None else partition.low_watermark)
