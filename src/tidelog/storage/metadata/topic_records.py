"""The metadata records by which a standalone broker creates, enlarges and configures topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from tidelog.metadata.records import TOPIC_RESOURCE, ConfigRecord, PartitionRecord, TopicRecord
from tidelog.storage.topics.topic import Topic
from tidelog.wire.fields import Message


def topic_records(topic: Topic, node_id: int, directory_id: uuid.UUID, *, leader_epoch: int = 0) -> list[Message]:
    """Return the records of a new topic. All its partitions are on one node, which leads them."""
    return [
        TopicRecord(topic.name, topic.topic_id),
        *config_records(TOPIC_RESOURCE, topic.name, {}, topic.properties),
        *partition_records(topic.topic_id, range(topic.partitions), node_id, directory_id, leader_epoch=leader_epoch),
    ]


def partition_records(
    topic_id: uuid.UUID, numbers: Iterable[int], node_id: int, directory_id: uuid.UUID, *, leader_epoch: int = 0
) -> list[Message]:
    """Return the records of new partitions on one node."""
    replicas, directories = [node_id], [directory_id]
    none: list[int] = []
    return [
        # The lists are shared: a change replaces a partition's lists.
        PartitionRecord(number, topic_id, replicas, replicas, none, none, node_id, 0, leader_epoch, 0, directories)
        for number in numbers
    ]


def config_records(resource_type: int, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Message]:
    """Return the records that change a resource's settings from `before` to `after`."""
    gone: list[Message] = [ConfigRecord(resource_type, name, key, None) for key in before if key not in after]
    changed = (ConfigRecord(resource_type, name, key, value) for key, value in after.items() if before.get(key) != value)
    return [*gone, *changed]
