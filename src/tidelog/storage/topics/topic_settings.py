"""Reads the settings of topics from a data folder of Tidelog or Kafka or from a backup, and the sources of the settings.

| source, in order of precedence | settings |
|---|---|
| ``tidelog-topics.json`` | a topic's own settings, in a folder of Tidelog 0.1 |
| ``__cluster_metadata-0`` | a topic's own settings, in a folder of Tidelog or of a KRaft node with its metadata there |
| the path's `topic_settings` | a topic's own settings, in a backup |
| ``__cluster_metadata-0`` | dynamic settings of the folder's broker, then of all brokers |
| a ``server.properties`` given by the caller | the broker's settings |
| without it, ``tidelog-served.json`` (`folder.served_settings`) | the settings of the broker that last served the folder |
| Kafka 3.9.1 | Kafka's defaults |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.config import BROKER_NAMES, LogConfig, PropertyValue, unaliased
from tidelog.formats.paths.file_path import FilePath
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.folder.served_settings import read_served_settings
from tidelog.storage.folder.topics_file import read_topics_file

DELETING = (
    *("cleanup.policy", "retention.ms", "retention.bytes"),
    *("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms"),
)
"""The settings that decide what a broker deletes."""


class Source(Enum):
    """Where a setting comes from. The value is text for people."""

    OPTION = "given here"
    TOPIC = "the topic's"
    METADATA_TOPIC = "the topic's, in the metadata log"
    BACKUP = "the topic's, in the backup"
    METADATA_BROKER = "the broker's, in the metadata log"
    FILE = "the broker's, in its configuration file"
    SERVED = "the broker's, when the folder was last served"
    DEFAULT = "Kafka's default"


class Settings(NamedTuple):
    """A topic's settings. `sources` has the source of each setting that is not Kafka's default, by Kafka's name.

    `is_known` is False if the folder does not know the topic, so that the topic's own settings are unknown. `is_broker_known`
    says whether a broker configuration was given or is stored in the folder.
    """

    config: LogConfig
    sources: Mapping[str, Source]
    is_known: bool
    is_broker_known: bool

    def source(self, name: str) -> Source:
        """Return where a setting comes from."""
        return self.sources.get(name, Source.DEFAULT)


class TopicSettings:
    """The settings of the topics in one data folder. `broker` are a server's properties, by Kafka's names.

    If `broker` is None, the settings with which the folder was last `served` are used. `is_kafkas_since` says that Kafka has
    served the folder since then.
    Raises CorruptCheckpointError, CorruptDataError for a damaged metadata log, StorageError.
    """

    def __init__(self, directory: FilePath, broker: Mapping[str, PropertyValue] | None = None) -> None:
        self._names = LogConfig.kinds().keys()
        old = read_topics_file(directory) or {}
        self._own = {name: (dict(one.topic.properties), Source.TOPIC) for name, one in old.items()}
        self._values: dict[str, PropertyValue] = self._taken(broker or {})
        self._defaults = dict.fromkeys(self._values, Source.FILE)
        self.served = None if broker is not None else read_served_settings(directory)
        self.is_kafkas_since = False
        self._is_broker_known = broker is not None
        if self.served is not None:
            self._values |= self.served.properties
            self._defaults = dict.fromkeys(self._values, Source.SERVED)
            self._is_broker_known = True
        self._in_backup: Callable[[str], Mapping[str, str] | None] | None = getattr(directory, "topic_settings", None)
        log = read_metadata_log(directory)
        if log is not None:
            owner = read_meta_properties(directory)
            node_id = -1 if owner is None else owner.node_id
            if self.served is not None:
                self.is_kafkas_since = log.image.broker_epoch(node_id) != self.served.broker_epoch
                self._is_broker_known = not self.is_kafkas_since
            dynamic = self._taken(log.image.broker_config(node_id))
            self._values |= dynamic
            self._defaults |= dict.fromkeys(dynamic, Source.METADATA_BROKER)
            for name in log.image.topics:
                self._own.setdefault(name, (log.image.topic_config(name), Source.METADATA_TOPIC))

    def _taken(self, broker: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
        """Return the topic defaults in a broker's properties, by the names of the topic settings."""
        wanted = {name: value for name, value in broker.items() if name in BROKER_NAMES}
        return {name: value for name, value in unaliased(wanted, warn=False, checks=False).items() if name in self._names}

    def of(self, topic: str) -> Settings:
        """Return a topic's settings. Raises InvalidArgumentError for a value that Kafka does not accept."""
        stored = self._stored(topic)
        properties, source = stored or ({}, Source.TOPIC)
        own = {name: value for name, value in unaliased(properties, warn=False, checks=False).items() if name in self._names}
        config = LogConfig.from_properties({**self._values, **own})
        return Settings(config, {**self._defaults, **dict.fromkeys(own, source)}, stored is not None, self._is_broker_known)

    def _stored(self, topic: str) -> tuple[Mapping[str, PropertyValue], Source] | None:
        """Return a topic's own settings, None if the folder does not know the topic."""
        if self._in_backup is None:
            return self._own.get(topic)
        found = self._in_backup(topic)
        return None if found is None else (found, Source.BACKUP)


def stricter_settings(ours: LogConfig, theirs: LogConfig) -> list[str]:
    """Return the names of the settings that make `theirs` keep fewer records than `ours`."""
    found = []
    if (theirs.is_deleted and not ours.is_deleted) or (theirs.is_compacted and not ours.is_compacted):
        found.append("cleanup.policy")
    if theirs.is_deleted:
        for name in ("retention.ms", "retention.bytes"):
            field_name = name.replace(".", "_")
            limit, own = getattr(theirs, field_name), getattr(ours, field_name) if ours.is_deleted else -1
            if limit >= 0 and (own < 0 or limit < own):
                found.append(name)
    if theirs.is_compacted and ours.is_compacted:
        if theirs.delete_retention_ms < ours.delete_retention_ms:
            found.append("delete.retention.ms")
        if theirs.min_compaction_lag_ms < ours.min_compaction_lag_ms:
            found.append("min.compaction.lag.ms")
    return found
