"""Determines the partitions that a node's folder should have according to the cluster metadata (KIP-631, KIP-858). No I/O.

| a replica's directory id | the replica belongs in |
|---|---|
| this folder's directory.id | this folder |
| the id of another folder that the node has registered | that folder |
| an id that the node has not registered | this folder if the node has registered no other (a new disk), else another folder |
| none, or a reserved id (unassigned, lost, migrating) | this folder, if the node has only one folder |
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
    """Return a message for each existing partition with a wrong topic id. Kafka sets these partitions'
    folders aside as strays.
    """
    wrong = {}
    for key, topic_id in found.items():
        topic = image.topics.get(key.topic)
        if topic is not None and topic_id is not None and topic_id != topic.topic_id:
            wrong[key] = (
                f"belongs to a different topic of that name: its topic id is {topic_id}, "
                f"the cluster metadata has {topic.topic_id}"
            )
    return wrong
