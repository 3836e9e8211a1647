"""The topics of a data folder by name, as in the folder's metadata: their configurations, and the check for colliding names."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

from tidelog.errors import InvalidArgumentError
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.partitions import Partitions
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_configs import TopicConfigs

logger = logging.getLogger("tidelog.storage")

SHOWN_TOPICS = 10
"""The maximum number of topics that a notice names."""


class TopicTable(TopicConfigs):
    """The topics of one folder, by name and id. Only `refresh` changes `by_name`."""

    def __init__(self, config: ManagerConfig, partitions: Partitions, store: MetadataStore) -> None:
        super().__init__(config, partitions, self._own_properties)
        self.by_name: dict[str, Topic] = {}
        self._store = store
        self._look_alikes: Counter[str] = Counter()
        """The number of topics for each name, with dots and underscores treated as equal."""
        self._restored()
        store.on_restore = self._restored

    def _own_properties(self, name: str) -> dict[str, str] | None:
        topic = self.by_name.get(name)
        return None if topic is None else topic.properties

    def refresh(self, name: str) -> None:
        """Update a topic from the metadata."""
        image = self._store.image
        found = image.topics.get(name)
        if self.by_name.pop(name, None) is not None:
            self._look_alikes[look_alike(name)] -= 1
        if found is not None and found.partitions:
            self.by_name[name] = Topic(name, found.topic_id, max(found.partitions) + 1, image.topic_config(name))
            self._look_alikes[look_alike(name)] += 1
        self._partitions.changed.add(name)
        self.forget(name)

    def _restored(self) -> None:
        """Update all topics from the metadata."""
        for name in {*self.by_name, *self._store.image.topics}:
            self.refresh(name)

    def refuse_collision(self, name: str) -> None:
        """Raise InvalidArgumentError if the name differs from an existing topic's name only in dots and underscores. Kafka does
        the same, because metrics would mix up such topics.
        """
        wanted = look_alike(name)
        if "_" not in wanted:
            return
        unknown = (other for other in self._partitions.topics() if other not in self.by_name)
        if not self._look_alikes[wanted] and all(look_alike(other) != wanted for other in unknown):
            return
        for other in {*self._partitions.topics(), *self.by_name}:
            if look_alike(other) == wanted:
                raise InvalidArgumentError(
                    f"topic {name!r} collides with an existing topic", found=repr(other), path=self._partitions.directory
                )


def look_alike(name: str) -> str:
    """Return a topic's name as in Kafka's metrics. Topics with equal results cannot be told apart there."""
    return name.replace(".", "_")


def warn_of_unknown(directory: Path, topics: set[str]) -> None:
    """Log a warning that names the topics of a data folder whose configuration is unknown."""
    if topics:
        shown = sorted(topics)[:SHOWN_TOPICS]
        logger.warning(
            "%s: the configuration of %s%s is unknown: retention and compaction are off for %s",
            directory,
            ", ".join(shown),
            f" and {len(topics) - len(shown)} more" if len(shown) < len(topics) else "",
            "it" if len(topics) == 1 else "them",
        )
