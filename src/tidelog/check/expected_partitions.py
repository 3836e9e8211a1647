"""The partitions that a node's folder should hold according to the cluster metadata (KIP-631, KIP-858). Pure.

| a replica's directory | the replica belongs |
|---|---|
| this folder's directory.id | here |
| another one that the node has registered | into that folder |
| one that the node has not registered | here if this is the only registered folder (its disk was replaced), else elsewhere |
| none, or a reserved one (unassigned, lost, migrating) | here, if the node has one folder |
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.metadata.directory_ids import directory_of, is_reserved
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.metadata.image import MetadataImage


class Owner(NamedTuple):
    """The owner of the folder: its node and directory."""

    node_id: int
    directory_id: uuid.UUID | None


def expected_partitions(image: MetadataImage, owner: Owner) -> dict[TopicPartition, uuid.UUID]:
    """Return the partitions that should be in the owner's folder, with their topics' ids."""
    registration = image.brokers.get(owner.node_id)
    registered = [] if registration is None else registration.log_dirs
    has_one_folder = len(registered) <= 1
    found = {}
    for topic in image.topics.values():
        for number in image.partitions_on(topic, owner.node_id):
            partition = topic.partitions[number]
            directory = directory_of(partition, owner.node_id)
            if directory is None or is_reserved(directory) or owner.directory_id is None:
                is_here = has_one_folder
            else:
                is_here = directory == owner.directory_id or registered == [owner.directory_id]
            if is_here:
                found[TopicPartition(topic.name, number)] = topic.topic_id
    return found


def strangers(found: Mapping[TopicPartition, uuid.UUID | None], image: MetadataImage) -> dict[TopicPartition, str]:
    """Return the findings about wrong topic ids of existing partitions: Kafka renames such folders to strays."""
    wrong = {}
    for key, topic_id in found.items():
        topic = image.topics.get(key.topic)
        if topic is not None and topic_id is not None and topic_id != topic.topic_id:
            wrong[key] = f"belongs to another topic of that name, {topic_id}; the cluster's metadata says {topic.topic_id}"
    return wrong
