"""The metadata changes by which a standalone broker begins to lead (KIP-101, KIP-320, KIP-631). Correct entries stay unchanged.

| a partition | gets |
|---|---|
| with a different leader, or none (as Kafka leaves it when it stops) | this node as its leader, in the next epoch |
| that was not closed cleanly and is not empty: its end may be lost | the next epoch |
| whose log has a newer epoch than the metadata | that epoch: Kafka removes a log's epochs above its leader's |
| whose replica is in a directory with a different id | this folder's id |

If Kafka was killed and left its registration unfenced, the broker is fenced: otherwise Kafka's next start would wait for the
session to end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config import INT32_MAX
from tidelog.metadata.records import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from tidelog.metadata.versions import DIRECTORIES_LEVEL
from tidelog.model import TopicPartition
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.fields import ZERO_UUID, Message

_FENCED = 1


def leading_records(store: MetadataStore, logs: Mapping[TopicPartition, PartitionLog], *, may_have_lost: bool) -> list[Message]:
    """Return the changes by which this node leads all its partitions. `may_have_lost` is True after an unclean shutdown."""
    image = store.image
    records: list[Message] = [
        BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=_FENCED)
        for broker in image.brokers.values()
        if not broker.fenced
    ]
    for name, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            if store.node_id in partition.replicas:
                log = logs.get(TopicPartition(name, number))
                lost = may_have_lost and log is not None and log.log_end_offset > 0
                change = _change(store, partition, log, has_lost=lost)
                if change is not None:
                    records.append(change)
    return records


def claiming_records(store: MetadataStore) -> list[Message]:
    """Return the changes that make this node the owner of all partitions, for a folder without an owner."""
    return [
        PartitionRecord(
            partition.partition_id,
            partition.topic_id,
            [store.node_id],
            [store.node_id],
            leader=store.node_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch + 1,
            directories=[store.directory_id],
        )
        for topic in store.image.topics.values()
        for partition in topic.partitions.values()
        if partition.replicas != [store.node_id] or partition.directories != [store.directory_id]
    ]


def next_epoch_record(store: MetadataStore, partition: PartitionRecord) -> Message | None:
    """Return the change that raises the epoch of a partition that has lost its end, or None if the epoch is the largest
    possible one.
    """
    if partition.leader_epoch >= INT32_MAX:
        return None
    return PartitionChangeRecord(partition.partition_id, partition.topic_id, leader=store.node_id)


def _change(store: MetadataStore, partition: PartitionRecord, log: PartitionLog | None, *, has_lost: bool) -> Message | None:
    node_id = store.node_id
    known = None if log is None else log.leader_epochs.latest_epoch
    before = partition.leader_epoch
    epoch = max(before + (has_lost or partition.leader != node_id), -1 if known is None else known + has_lost)
    epoch = min(epoch, INT32_MAX)
    isr = None if partition.isr == [node_id] else [node_id]
    directories = None
    names_directories = store.directory_id != ZERO_UUID and store.image.metadata_version >= DIRECTORIES_LEVEL
    if names_directories and partition.replicas == [node_id] and partition.directories != [store.directory_id]:
        directories = [store.directory_id]
    if epoch - before > 1:
        # A change record raises the epoch by one; a whole record can set any.
        return PartitionRecord(
            partition.partition_id,
            partition.topic_id,
            partition.replicas,
            [node_id],
            partition.removing_replicas,
            partition.adding_replicas,
            node_id,
            partition.leader_recovery_state,
            epoch,
            partition.partition_epoch + 1,
            directories or partition.directories,
        )
    leader = node_id if epoch > before else NO_LEADER_CHANGE
    if leader == NO_LEADER_CHANGE and isr is None and directories is None:
        return None
    return PartitionChangeRecord(partition.partition_id, partition.topic_id, isr, leader, directories=directories)
