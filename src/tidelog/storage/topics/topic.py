"""A topic, as users of the storage engine see it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Topic:
    """A topic and its own settings: `properties` has their values, as text, by Kafka's names."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    properties: dict[str, str] = field(default_factory=dict)

    def with_properties(self, properties: dict[str, str]) -> Topic:
        """Return a copy of the topic with these properties."""
        return replace(self, properties=dict(properties))
