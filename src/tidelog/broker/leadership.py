"""The epochs in which this broker leads (KIP-101, KIP-320): each partition has its own, as Kafka's controller counts them.

A leader's epoch shows followers and consumers whether the log that they know may have been cut since. It is in the metadata log,
and never goes back. A start writes only what changes (`leading`): a partition is led in the next epoch where the last end was not
clean and its log holds something, or where another led it. A new partition's epoch is 0.

A topic that the metadata does not know has the newest epoch that its log knows, and the next one after an end that was not clean.

In Kafka a leader notes its epoch in each log as soon as it leads it, at the log's end. Here a log notes it with the first append,
so that a start writes nothing; answers about epochs (`end_offset_for_epoch`, `epoch_at_start`) are as they are after such a note.
"""

from __future__ import annotations

import logging

from tidelog.config import INT32_MAX
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata.leading import leading_records, next_epoch_record
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.broker")


class Leadership:
    """The leader epoch of each partition."""

    def __init__(self, manager: LogManager) -> None:
        """Begin to lead the logs of a manager that has started. Raises StorageError."""
        self._store = manager.metadata
        self._found: dict[TopicPartition, int] = {}
        may_have_lost = not manager.had_clean_shutdown
        topics = self._store.image.topics
        for key, log in manager.logs.items():
            # Nobody else has to have the records: where a checkpoint is behind, all that is there counts.
            log.update_high_watermark(log.log_end_offset_metadata)
            if key.topic not in topics:
                epoch = log.leader_epochs.latest_epoch or 0
                self._found[key] = min(epoch + (may_have_lost and log.log_end_offset > 0), INT32_MAX)
        self._store.commit(leading_records(self._store, manager.logs, may_have_lost=may_have_lost))
        manager.offline.returned = self.on_return

    def epoch_of(self, key: TopicPartition) -> int:
        """Return the epoch in which a partition is led: what goes into batches, metadata and answers."""
        topic = self._store.image.topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return self._found.get(key, 0) if partition is None else partition.leader_epoch

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of a log's last epoch at or below `epoch`, None if that is not known (spec §14)."""
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

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Lead a partition that was offline again; a new epoch shows consumers where its disk has lost its end."""
        log.update_high_watermark(log.log_end_offset_metadata)
        key = log.topic_partition
        topic = self._store.image.topics.get(key.topic)
        if not has_lost:
            return
        if topic is None or key.partition not in topic.partitions:
            self._found[key] = min(self.epoch_of(key) + 1, INT32_MAX)
            return
        change = next_epoch_record(self._store, topic.partitions[key.partition])
        try:
            self._store.commit([] if change is None else [change])
        except StorageError as error:
            logger.error("%s", error)
