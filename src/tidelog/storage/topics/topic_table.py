"""The topics of a data folder as its metadata has them now, by name: their configurations, and which names look alike."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

from tidelog.config import LogConfig, PropertyValue
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.partitions import Partitions
from tidelog.storage.topics.topic import Topic

logger = logging.getLogger("tidelog.storage")

KEEP_EVERYTHING: dict[str, PropertyValue] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
"""What a topic has that nobody has given us a configuration for, besides the folder's defaults."""

SHOWN_TOPICS = 10
"""A notice names no more than so many."""


class TopicTable:
    """The topics of one folder, by name and id. `by_name` is to be read, not changed: `refresh` does that."""

    def __init__(self, config: ManagerConfig, partitions: Partitions, store: MetadataStore) -> None:
        self.config = config
        self.by_name: dict[str, Topic] = {}
        self._partitions = partitions
        self._store = store
        self._configs: dict[str, LogConfig] = {}
        self._look_alikes: Counter[str] = Counter()
        """How many topics have a name, but for dots and underscores."""
        self._restored()
        store.on_restore = self._restored

    def config_of(self, name: str) -> LogConfig:
        """Return the configuration of a topic's logs."""
        config = self._configs.get(name)
        if config is None:
            topic = self.by_name.get(name)
            config = self.config.topic_config(KEEP_EVERYTHING if topic is None else topic.properties)
            self._configs[name] = config
        return config

    def reconfigure(self, config: ManagerConfig) -> None:
        """Give topics other defaults. Their logs have them with `configure_logs`."""
        self.config = config
        self._configs.clear()

    def configure_logs(self, name: str) -> None:
        """Give a topic's logs the configuration. One that cannot follow is offline, and says so."""
        for key in self._partitions.keys_of(name):
            log = self._partitions.logs.get(key)
            if log is not None:
                try:
                    log.update_config(self.config_of(name))
                except StorageError as error:
                    logger.error("%s: %s", log.directory, error)

    def refresh(self, name: str) -> None:
        """Take a topic as the metadata has it now."""
        image = self._store.image
        found = image.topics.get(name)
        if self.by_name.pop(name, None) is not None:
            self._look_alikes[_look_alike(name)] -= 1
        if found is not None and found.partitions:
            self.by_name[name] = Topic(name, found.topic_id, max(found.partitions) + 1, image.topic_config(name))
            self._look_alikes[_look_alike(name)] += 1
        self._partitions.changed.add(name)
        self._configs.pop(name, None)

    def _restored(self) -> None:
        """Take all topics as the metadata has them."""
        for name in {*self.by_name, *self._store.image.topics}:
            self.refresh(name)

    def refuse_collision(self, name: str) -> None:
        """Kafka refuses a topic whose name differs from another's in dots and underscores only: metrics would mix them up."""
        wanted = _look_alike(name)
        if "_" not in wanted:
            return
        unknown = (other for other in self._partitions.topics() if other not in self.by_name)
        if not self._look_alikes[wanted] and all(_look_alike(other) != wanted for other in unknown):
            return
        for other in {*self._partitions.topics(), *self.by_name}:
            if _look_alike(other) == wanted:
                raise InvalidArgumentError(
                    f"topic {name!r} collides with another", found=repr(other), path=self._partitions.directory
                )


def _look_alike(name: str) -> str:
    return name.replace(".", "_")


def warn_of_unknown(directory: Path, topics: set[str]) -> None:
    """Log which topics of a data folder nothing is known of."""
    if topics:
        shown = sorted(topics)[:SHOWN_TOPICS]
        logger.warning(
            "%s: nothing is known of the configuration of %s%s: retention and compaction are off for %s",
            directory,
            ", ".join(shown),
            f" and {len(topics) - len(shown)} more" if len(shown) < len(topics) else "",
            "it" if len(topics) == 1 else "them",
        )
