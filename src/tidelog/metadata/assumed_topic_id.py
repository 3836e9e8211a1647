"""Ids for topics that have no id: in ZooKeeper clusters below protocol version 2.8, topics have only names (KIP-516).

An image keys topics by id. So a topic without an id gets one that is unique within this process. Such an id has its own type and
never leaves the process: clients, other brokers and files get no id (`known_topic_id`).
"""

from __future__ import annotations

import uuid


class AssumedTopicId(uuid.UUID):
    """Stands for the id of a topic that has no id."""

    @classmethod
    def new(cls) -> AssumedTopicId:
        """Return a new unique id."""
        return cls(int=uuid.uuid4().int)


def known_topic_id(topic_id: uuid.UUID | None) -> uuid.UUID | None:
    """Return the topic's real id, None if it has none."""
    return None if isinstance(topic_id, AssumedTopicId) else topic_id
