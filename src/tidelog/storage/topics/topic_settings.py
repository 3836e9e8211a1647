"""A topic's settings as its data folder knows them, and where each comes from. Of Tidelog's folders and of Kafka's.

| where, first found counts | what |
|---|---|
| ``tidelog-topics.json`` | a topic's own settings, in a folder of Tidelog 0.1 |
| ``__cluster_metadata-0`` | a topic's own settings, in a folder of Tidelog's, or of a KRaft node that has its metadata there |
| the same | dynamic settings of the broker whose folder it is, then of all brokers |
| a ``server.properties`` that the caller gives | the broker's settings: no folder has them |
| Kafka 3.9.1 | its defaults |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tidelog.config import BROKER_NAMES, LogConfig, PropertyValue, unaliased
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.folder.topics_file import read_topics_file


class Source(Enum):
    """Where a setting comes from; the value is what people read."""

    OPTION = "given here"
    TOPIC = "the topic's"
    METADATA_TOPIC = "the topic's, in the metadata log"
    METADATA_BROKER = "the broker's, in the metadata log"
    FILE = "the broker's, in its configuration file"
    DEFAULT = "Kafka's default"


class Settings(NamedTuple):
    """A topic's settings. `sources` names, by Kafka's name, where those come from that are not Kafka's defaults.

    `is_known` is False where the folder knows nothing of the topic: then its own settings may have been any.
    """

    config: LogConfig
    sources: Mapping[str, Source]
    is_known: bool

    def source(self, name: str) -> Source:
        """Return where a setting comes from."""
        return self.sources.get(name, Source.DEFAULT)


class TopicSettings:
    """The settings of the topics in one data folder. `broker` are a server's properties, under Kafka's names.

    Raises CorruptCheckpointError, CorruptDataError for a damaged metadata log, StorageError.
    """

    def __init__(self, directory: Path, broker: Mapping[str, PropertyValue] | None = None) -> None:
        self._names = LogConfig.kinds().keys()
        old = read_topics_file(directory) or {}
        self._own = {name: (dict(one.topic.properties), Source.TOPIC) for name, one in old.items()}
        self._defaults = dict.fromkeys(self._taken(broker or {}), Source.FILE)
        self._values: dict[str, PropertyValue] = self._taken(broker or {})
        log = read_metadata_log(directory)
        if log is not None:
            owner = read_meta_properties(directory)
            dynamic = self._taken(log.image.broker_config(-1 if owner is None else owner.node_id))
            self._values |= dynamic
            self._defaults |= dict.fromkeys(dynamic, Source.METADATA_BROKER)
            for name in log.image.topics:
                self._own.setdefault(name, (log.image.topic_config(name), Source.METADATA_TOPIC))

    def _taken(self, broker: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
        """Return what a broker's properties say of topics, under the topics' names."""
        wanted = {name: value for name, value in broker.items() if name in BROKER_NAMES}
        return {name: value for name, value in unaliased(wanted, tell=False).items() if name in self._names}

    def of(self, topic: str) -> Settings:
        """Return a topic's settings. Raises InvalidArgumentError for a value that Kafka does not take."""
        properties, source = self._own.get(topic, ({}, Source.TOPIC))
        own = {name: value for name, value in unaliased(properties, tell=False).items() if name in self._names}
        config = LogConfig.from_properties({**self._values, **own})
        return Settings(config, {**self._defaults, **dict.fromkeys(own, source)}, topic in self._own)
