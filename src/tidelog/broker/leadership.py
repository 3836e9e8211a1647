"""Partition leadership, and up to where records are committed: one protocol, two implementations.

| | |
|---|---|
| `SingleLeadership` | one broker: it leads every partition that it has, and what it has appended is committed |
| `ClusterLeadership` (`replicas/`) | one of a cluster: controllers say who leads; what the in-sync replicas have is committed |

APIs ask a `Leadership`, never which of both it is. Everything in here belongs to the loop's thread.

A leader's epoch (KIP-101, KIP-320) shows followers and consumers whether the log that they know may have been cut since. It is
in the metadata log, and never goes back. A start of a single broker writes only what changes (`leading`): a partition is led in
the next epoch where the last end was not clean and its log holds something, or where another led it. A new partition's epoch is
0.

A topic that a single broker's metadata does not know has the newest epoch that its log knows, and the next one after an end
that was not clean.

In Kafka a leader notes its epoch in each log as soon as it leads it, at the log's end. A single broker notes it with the first
append, so that a start writes nothing; answers about epochs (`end_offset_for_epoch`, `epoch_at_start`) are as they are after
such a note.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.broker.server.listeners import Listener
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
"""An epoch that a request does not name; also that of a partition that this broker does not lead."""

Committed = Callable[[ErrorCode], None]
"""Called once with NONE when records are committed, else with why they are not."""

Deleted = Callable[[ErrorCode, int], None]
"""Called once with NONE and the low watermark when every live replica has let the records go, else with the error and -1."""

Flushed = Callable[[PartitionLog, LogOffsetMetadata], None]
"""Called with a log, and the end of it that is on the disk."""

_NONE = ErrorCode.NONE


class Leadership(Protocol):
    """The checks of APIs and coordinators before and after they read or append."""

    # --- may it be done here?

    def epoch_of(self, key: TopicPartition) -> int:
        """Return the epoch in which this broker leads a partition, for batches and answers; NO_EPOCH if it does not."""

    def leader_of(self, key: TopicPartition) -> tuple[int, int]:
        """Return a partition's leader and its epoch, for `current_leader` in responses; (-1, -1) if unknown."""

    def refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Return NONE if this broker leads the partition, in the epoch that the request names; else why it refuses.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
        """

    def reading_refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Return the same where any replica will do, a follower as well: for consumers since Fetch 11 (KIP-392)."""

    def follower_refusal(self, key: TopicPartition, current_leader_epoch: int, replica_id: int, replica_epoch: int) -> ErrorCode:
        """Return the same for a follower's fetch, which only the leader answers, and only to the partition's replicas."""

    def check_in_sync(self, log: PartitionLog) -> ErrorCode:
        """Return NOT_ENOUGH_REPLICAS, for acks=all before an append, where fewer are in sync than `min.insync.replicas`."""

    def check_latest_known(self, log: PartitionLog) -> ErrorCode:
        """Return OFFSET_NOT_AVAILABLE as long as a new leader's high watermark is below the start of its epoch (KIP-207)."""

    # --- it was done

    def appended(self, log: PartitionLog) -> bool:
        """Note an append: the high watermark moves if it may, delayed fetches are woken. Whether the whole log is committed."""

    def when_committed(self, log: PartitionLog, end_offset: int, timeout_ms: int | None, done: Committed) -> bool:
        """Return True if all below `end_offset` is committed; else have `done` called, once. It may be called within this.

        `done` gets NONE, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR,
        UNKNOWN_TOPIC_OR_PARTITION, or REQUEST_TIMED_OUT after `timeout_ms` (None: never).
        """

    def when_low_watermark(self, log: PartitionLog, offset: int, timeout_ms: int, done: Deleted) -> int | None:
        """Return the low watermark if every live replica's log starts at or above `offset` (DeleteRecords, KIP-107).

        Else return None, and have `done` called, once.
        """

    def follower_fetched(
        self, log: PartitionLog, replica_id: int, replica_epoch: int, offset: LogOffsetMetadata, log_start_offset: int
    ) -> None:
        """Note that a follower has all below `offset`, and where its log starts: its fetch says so."""

    def is_held_back(self, log: PartitionLog, replica_id: int) -> bool:
        """Whether a follower gets no records for now: copying replicas is throttled (KIP-73)."""

    def sent_to_follower(self, log: PartitionLog, size_bytes: int) -> None:
        """Note bytes that a follower gets."""

    def preferred_replica(self, key: TopicPartition, client_rack: str, fetch_offset: int, listener: Listener) -> int | None:
        """Return the broker that a consumer in a rack should read a partition from instead, None for this one (KIP-392)."""

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Take up a partition again that was offline; `has_lost` if its disk has lost its end."""

    # --- epochs

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of a log's last epoch at or below `epoch`, None if that is unknown (spec §14)."""

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        """Return the epoch that the log start is in; `known` is what the log knows, -1 if it does not."""


class SingleLeadership:
    """A single broker's: it leads what it has."""

    def __init__(
        self,
        manager: LogManager,
        wake_fetches: Callable[[TopicPartition], None],
        when_flushed: Callable[[PartitionLog, Flushed], None],
    ) -> None:
        """Begin to lead the logs of a manager that has started. Raises StorageError.

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
            # No other replica needs the records: if a checkpoint lags, the whole log counts.
            log.update_high_watermark(log.log_end_offset_metadata)
            if key.topic not in topics:
                epoch = log.leader_epochs.latest_epoch or 0
                self._found[key] = min(epoch + (may_have_lost and log.log_end_offset > 0), INT32_MAX)
        self._store.commit(leading_records(self._store, manager.logs, may_have_lost=may_have_lost))
        manager.offline.returned = self.on_return

    # --- may it be done here?

    def epoch_of(self, key: TopicPartition) -> int:
        """Return the epoch in which a partition is led: what goes into batches, metadata and answers."""
        topic = self._store.image.topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return self._found.get(key, 0) if partition is None else partition.leader_epoch

    def leader_of(self, key: TopicPartition) -> tuple[int, int]:
        """Return this broker: it leads whatever there is."""
        return self._node_id, self.epoch_of(key)

    def refusal(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """Return why a partition is not led here in that epoch: it does not exist, its disk fails, or the epoch is another."""
        if key not in self._logs:
            return self._why_missing(key)
        if current_leader_epoch != NO_EPOCH:
            current = self.epoch_of(key)
            if current_leader_epoch != current:
                return ErrorCode.FENCED_LEADER_EPOCH if current_leader_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
        return _NONE

    reading_refusal = refusal

    def follower_refusal(self, key: TopicPartition, current_leader_epoch: int, replica_id: int, replica_epoch: int) -> ErrorCode:
        """A single broker has no followers."""
        if current_leader_epoch == NO_EPOCH:
            return self.refusal(key) or ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.refusal(key, current_leader_epoch) or ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_in_sync(self, log: PartitionLog) -> ErrorCode:
        """One replica is everything: Kafka asks for no more replicas than a partition has."""
        return _NONE

    def check_latest_known(self, log: PartitionLog) -> ErrorCode:
        """The high watermark is the log end."""
        return _NONE

    # --- it was done

    def appended(self, log: PartitionLog) -> bool:
        """Show what was appended to readers, at once or as soon as it is on the disk."""
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
        """Wait for the disk, where the log is to be flushed; that has no time limit."""
        if log.high_watermark >= end_offset:
            return True
        log.when_flushed(lambda has_failed: done(ErrorCode.KAFKA_STORAGE_ERROR if has_failed else _NONE))
        return False

    def when_low_watermark(self, log: PartitionLog, offset: int, timeout_ms: int, done: Deleted) -> int | None:
        """There is no other replica to wait for."""
        return log.log_start_offset

    def follower_fetched(
        self, log: PartitionLog, replica_id: int, replica_epoch: int, offset: LogOffsetMetadata, log_start_offset: int
    ) -> None:
        """A single broker has no followers."""

    def is_held_back(self, log: PartitionLog, replica_id: int) -> bool:
        """No-op: there are no followers."""
        return False

    def sent_to_follower(self, log: PartitionLog, size_bytes: int) -> None:
        """Note nothing: there are no followers."""

    def preferred_replica(self, key: TopicPartition, client_rack: str, fetch_offset: int, listener: Listener) -> int | None:
        """There is no other broker."""
        return None

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Lead a partition that was offline again; a new epoch shows consumers where its disk has lost its end."""
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
                self._store.settle(change)  # It is by now, unless others came in between.
            except StorageError as error:
                logger.error("%s", error)

        # All partitions of a disk may come back: their clients do not wait for the disk once for each.
        self._manager.scheduler.aside(self._store.flush, flushed)

    # --- epochs

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of a log's last epoch at or below `epoch`, None if that is unknown (spec §14)."""
        if epoch < 0 or log.config.magic < 2:
            return None
        latest, current = log.leader_epochs.latest, self.epoch_of(log.topic_partition)
        if latest is None:
            return (epoch, log.log_end_offset) if epoch <= current else None
        if latest.epoch < epoch <= current:
            # Between the two nothing was written.
            return (epoch if epoch == current else latest.epoch), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        """Return the epoch that the log start is in; `known` is what the log knows, -1 if it does not."""
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
