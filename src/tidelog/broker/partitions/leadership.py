"""Partition leadership, and which records are committed: one interface with two implementations.

| | |
|---|---|
| `SingleLeadership` | a standalone broker: it leads all its partitions; records are committed when they are appended |
| `ClusterLeadership` (`replicas/`) | a member: controllers choose leaders; records are committed once the ISR has them |

APIs work with either `Leadership`. Use everything here only on the event loop's thread.

The leader epoch (KIP-101, KIP-320) shows followers and consumers that a log may have been truncated. It is stored in the metadata
log and never decreases. When a standalone broker starts, it writes only changed epochs (`leading`): a partition gets the next
epoch if the last shutdown was not clean and its log is not empty, or if another broker led it. A new partition has epoch 0.

If a topic is missing from a standalone broker's metadata, its partitions use the newest epoch in their logs, and the next one
after an unclean shutdown.

In Kafka a new leader stores its epoch in each log at once, at the log end. A standalone broker stores the epoch with the first
append, so that a start writes nothing. The results of `end_offset_for_epoch` and `epoch_at_start` are the same as if the epoch
had been stored at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.broker.requests.listeners import Listener
from tidelog.config import INT32_MAX
from tidelog.errors import LogOfflineError, StorageError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata.leading import leading_records, next_epoch_record
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

NO_EPOCH = -1
"""The epoch of a request without an epoch, and of a partition that this broker does not lead."""

Committed = Callable[[ErrorCode], None]
"""A function to call once: with NONE when records have been committed, or with the error code."""

Deleted = Callable[[ErrorCode, int], None]
"""A function to call once: with NONE and the low watermark when all live replicas have moved their log start, or with the error
code and -1.
"""

Flushed = Callable[[PartitionLog, LogOffsetMetadata], None]
"""A function to call with a log and the offset up to which it is on disk."""

_NONE = ErrorCode.NONE


class Leadership(Protocol):
    """The checks that APIs and coordinators make before and after they read or append."""

    # --- before the operation

    def epoch_of(self, key: TopicPartition) -> int:
        """Return the leader epoch in which this broker leads a partition, or NO_EPOCH if this broker does not lead it."""

    def leader_of(self, key: TopicPartition) -> tuple[int, int]:
        """Return a partition's leader and its epoch, for `current_leader` in responses; (-1, -1) if unknown."""

    def refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Return NONE if this broker leads the partition in the request's epoch, otherwise the error code:

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
        """

    def reading_refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Like `refusal`, but also accepts requests to a follower, for consumers that use Fetch 11 or later (KIP-392)."""

    def follower_refusal(self, key: TopicPartition, current_leader_epoch: int, replica_id: int, replica_epoch: int) -> ErrorCode:
        """Like `refusal`, for a follower's fetch. The follower must be one of the partition's replicas."""

    def check_in_sync(self, log: PartitionLog) -> ErrorCode:
        """Return NOT_ENOUGH_REPLICAS if an append with acks=all must be refused, because fewer than `min.insync.replicas` are
        in sync. Return NONE otherwise.
        """

    def is_alone(self, log: PartitionLog) -> bool:
        """Whether this broker leads the partition and has its only replica, so that appended records are committed at once."""

    def check_latest_known(self, log: PartitionLog) -> ErrorCode:
        """Return OFFSET_NOT_AVAILABLE while a new leader's high watermark is below the start of its epoch, NONE otherwise
        (KIP-207).
        """

    # --- after the operation

    def appended(self, log: PartitionLog) -> bool:
        """Handle an append: advance the high watermark if possible, and wake delayed fetches. Return whether the whole log is
        committed.
        """

    def when_committed(self, log: PartitionLog, end_offset: int, timeout_ms: int | None, done: Committed) -> bool:
        """Return True if everything below `end_offset` is committed. Otherwise return False and call `done` once, possibly before
        this method returns.

        `done` gets NONE, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR,
        UNKNOWN_TOPIC_OR_PARTITION, or REQUEST_TIMED_OUT after `timeout_ms` (None: never).
        """

    def when_low_watermark(self, log: PartitionLog, offset: int, timeout_ms: int, done: Deleted) -> int | None:
        """Return the low watermark if every live replica's log starts at or above `offset` (DeleteRecords, KIP-107).

        Otherwise return None, and call `done` once.
        """

    def follower_fetched(
        self, log: PartitionLog, replica_id: int, replica_epoch: int, offset: LogOffsetMetadata, log_start_offset: int
    ) -> None:
        """Store a follower's progress, as shown by its fetch: its log starts at `log_start_offset` and ends at `offset`."""

    def is_held_back(self, log: PartitionLog, replica_id: int) -> bool:
        """Whether a follower gets no records for now, because replication is throttled (KIP-73)."""

    def sent_to_follower(self, log: PartitionLog, size_bytes: int) -> None:
        """Count bytes sent to a follower against the replication throttle."""

    def preferred_replica(self, key: TopicPartition, client_rack: str, fetch_offset: int, listener: Listener) -> int | None:
        """Return the broker from which a consumer in this rack should read, or None if it should read from this broker
        (KIP-392).
        """

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Handle a partition that is online again. `has_lost` is whether its disk has lost the end of the log."""

    # --- epochs

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return the last epoch at or below `epoch` in a log, with its end offset; None if there is none (spec §14)."""

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        """Return the leader epoch at the log start. `known` is this epoch as stored in the log, -1 if none is stored."""


class SingleLeadership:
    """The leadership of a standalone broker: it leads all its partitions."""

    def __init__(
        self,
        manager: LogManager,
        wake_fetches: Callable[[TopicPartition], None],
        when_flushed: Callable[[PartitionLog, Flushed], None],
    ) -> None:
        """Lead all logs of a manager that has been started. Raises StorageError if the epochs cannot be written.

        `wake_fetches` is `DelayedFetches.appended`, `when_flushed` is `Flushes.appended`.
        """
        self._manager = manager
        self._node_id = manager.owner.node_id
        self._logs = manager.logs
        self._wake_fetches = wake_fetches
        self._when_flushed = when_flushed
        self._store = manager.metadata
        self._found: dict[TopicPartition, int] = {}
        may_have_lost = not manager.had_clean_shutdown
        topics = self._store.image.topics
        for key, log in manager.logs.items():
            # There are no other replicas, so the whole log is committed even if the checkpoint lags.
            log.update_high_watermark(log.log_end_offset_metadata)
            if key.topic not in topics:
                epoch = log.leader_epochs.latest_epoch or 0
                self._found[key] = min(epoch + (may_have_lost and log.log_end_offset > 0), INT32_MAX)
        self._store.commit(leading_records(self._store, manager.logs, may_have_lost=may_have_lost))
        manager.offline.returned = self.on_return

    # --- before the operation

    def epoch_of(self, key: TopicPartition) -> int:
        topic = self._store.image.topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return self._found.get(key, 0) if partition is None else partition.leader_epoch

    def leader_of(self, key: TopicPartition) -> tuple[int, int]:
        return self._node_id, self.epoch_of(key)

    def refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Return an error code if the partition does not exist, its disk has failed, or the request's epoch differs; NONE
        otherwise.
        """
        if key not in self._logs:
            return self._why_missing(key)
        if current_leader_epoch != NO_EPOCH:
            current = self.epoch_of(key)
            if current_leader_epoch != current:
                return ErrorCode.FENCED_LEADER_EPOCH if current_leader_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
        return _NONE

    reading_refusal = refusal

    def follower_refusal(self, key: TopicPartition, current_leader_epoch: int, replica_id: int, replica_epoch: int) -> ErrorCode:
        """Return an error code in any case: a standalone broker has no followers."""
        if current_leader_epoch == NO_EPOCH:
            return self.refusal(key) or ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.refusal(key, current_leader_epoch) or ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_in_sync(self, log: PartitionLog) -> ErrorCode:
        """Return NONE: one replica is enough, because Kafka never requires more replicas in sync than a partition has."""
        return _NONE

    def is_alone(self, log: PartitionLog) -> bool:
        """Return True: there are no other replicas."""
        return True

    def check_latest_known(self, log: PartitionLog) -> ErrorCode:
        """Return NONE: when an epoch begins, the high watermark is the log end."""
        return _NONE

    # --- after the operation

    def appended(self, log: PartitionLog) -> bool:
        """Make appended records visible to readers: at once, or when they are on disk if the log must be flushed."""
        if log.is_flush_awaited:
            self._when_flushed(log, self._flushed)
            return False
        log.watermarks.update_high_watermark_fast()
        self._wake_fetches(log.topic_partition)
        return True

    def _flushed(self, log: PartitionLog, end: LogOffsetMetadata) -> None:
        if log.high_watermark < end.message_offset <= log.log_end_offset:
            log.update_high_watermark(end)
            self._wake_fetches(log.topic_partition)

    def when_committed(self, log: PartitionLog, end_offset: int, timeout_ms: int | None, done: Committed) -> bool:
        """Return True, or wait for the disk if the log must be flushed. The wait has no time limit."""
        if log.high_watermark >= end_offset:
            return True
        log.when_flushed(lambda has_failed: done(ErrorCode.KAFKA_STORAGE_ERROR if has_failed else _NONE))
        return False

    def when_low_watermark(self, log: PartitionLog, offset: int, timeout_ms: int, done: Deleted) -> int | None:
        """Return the log start: there are no other replicas to wait for."""
        return log.log_start_offset

    def follower_fetched(
        self, log: PartitionLog, replica_id: int, replica_epoch: int, offset: LogOffsetMetadata, log_start_offset: int
    ) -> None:
        """Do nothing: a standalone broker has no followers."""

    def is_held_back(self, log: PartitionLog, replica_id: int) -> bool:
        """Return False: there are no followers."""
        return False

    def sent_to_follower(self, log: PartitionLog, size_bytes: int) -> None:
        """Do nothing: there are no followers."""

    def preferred_replica(self, key: TopicPartition, client_rack: str, fetch_offset: int, listener: Listener) -> int | None:
        """Return None: there is no other broker."""
        return None

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Lead a partition that is online again. If its disk has lost the end of the log, begin a new epoch, which shows
        consumers the truncation.
        """
        log.update_high_watermark(log.log_end_offset_metadata)
        key = log.topic_partition
        if not has_lost:
            return
        partition = self._store.image.partition(*key)
        if partition is None:
            self._found[key] = min(self.epoch_of(key) + 1, INT32_MAX)
            return
        record = next_epoch_record(self._store, partition)
        if record is None:
            return
        try:
            change = self._store.append([record])
        except StorageError as error:
            logger.error("%s", error)
            return

        def flushed(_: object) -> None:
            try:
                # The earlier content has been committed, unless more has been appended in the meantime.
                self._store.settle(change)
            except StorageError as error:
                logger.error("%s", error)

        # All partitions of a disk may return at the same time: clients must not wait for one flush after the other.
        self._manager.scheduler.aside(self._store.flush, flushed)

    # --- epochs

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        if epoch < 0 or log.config.magic < 2:
            return None
        latest, current = log.leader_epochs.latest, self.epoch_of(log.topic_partition)
        if latest is None:
            return (epoch, log.log_end_offset) if epoch <= current else None
        if latest.epoch < epoch <= current:
            # No records were written between the two epochs.
            return (epoch if epoch == current else latest.epoch), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        if known < 0 and log.config.magic > 1 and log.leader_epochs.latest is None and log.log_end_offset <= log.log_start_offset:
            return self.epoch_of(log.topic_partition)
        return known

    # --- inside

    def _why_missing(self, key: TopicPartition) -> ErrorCode:
        try:
            self._manager.log(*key)
        except UnknownTopicOrPartitionError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except LogOfflineError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return _NONE
