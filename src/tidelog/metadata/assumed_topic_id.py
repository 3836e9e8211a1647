"""Ids for topics that have none: in clusters of ZooKeeper below protocol 2.8 topics are known by their names alone (KIP-516).

An image keys its topics by id. So a topic without one gets an id that no other has, as long as this process runs; it is of a
type of its own, and never leaves: clients, other brokers and files get none (`known_topic_id`).
"""

from __future__ import annotations

import uuid


class AssumedTopicId(uuid.UUID):
    """Stands for the id of a topic that has none."""

    @classmethod
    def new(cls) -> AssumedTopicId:
        """Return one that no other topic has."""
        return cls(int=uuid.uuid4().int)


def known_topic_id(topic_id: uuid.UUID | None) -> uuid.UUID | None:
    """Return a topic's id as others know it: None if it has none."""
    return None if isinstance(topic_id, AssumedTopicId) else topic_id
