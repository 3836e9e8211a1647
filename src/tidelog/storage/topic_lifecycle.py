"""Topics of a data folder: created, enlarged, configured, adopted, deleted, each so that a crash leaves all of it or nothing.

``tidelog-topics.json`` (`topics_file`) decides what is there. It is replaced first, the folders follow:

| | 1 | 2 | 3 | a start after a crash |
|---|---|---|---|---|
| create, add partitions | the topic is in the file | folders are made | they are synced | makes what is missing |
| delete | it is marked in the file | folders become ``….<uuid>-delete`` | it leaves the file | goes on with 2 |
| alter, adopt | the file has the properties | logs get them | | |

What fails without a crash is undone: a refused creation leaves nothing behind. A deletion that meets a folder which cannot be
renamed stays a deletion, and is gone on with at the next try or start.

Topics that the file does not know (a backup, a folder from Kafka) have the configuration `KEEP_EVERYTHING` until someone
adopts them. `log_manager` owns one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tidelog.config import LogConfig, PropertyValue, unaliased
from tidelog.errors import (
    InvalidArgumentError,
    StorageError,
    TidelogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.log.checkpoints import sync_directory
from tidelog.log.names import TopicPartition
from tidelog.log.partition_metadata import format_topic_id
from tidelog.storage.data_folder import FolderContents, new_topic_id
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.new_topic import check_topic_name
from tidelog.storage.partitions import PartitionFolder, Partitions
from tidelog.storage.topics_file import Topic, read_topics, write_topics

logger = logging.getLogger("tidelog.storage")

KEEP_EVERYTHING: dict[str, PropertyValue] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
"""What a topic has that nobody has told us a configuration for, besides the folder's defaults."""

MAX_PARTITIONS = 2**31 - 1


class TopicLifecycle:
    """The topics of `directory`, `topics` as the file had them, with their logs in `partitions`."""

    def __init__(self, directory: Path, config: ManagerConfig, partitions: Partitions, topics: Mapping[str, Topic]) -> None:
        self._directory = directory
        self._config = config
        self._partitions = partitions
        self._topics = dict(topics)
        self._configs: dict[str, LogConfig] = {}

    # --- asking

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""
        return {name: topic for name, topic in self._topics.items() if not topic.is_deleting}

    def find(self, name: str) -> Topic | None:
        """Return a topic that has a configuration, None if there is none of that name."""
        topic = self._topics.get(name)
        return None if topic is None or topic.is_deleting else topic

    def get(self, name: str) -> Topic:
        """Return a topic that has a configuration. Raises UnknownTopicOrPartitionError."""
        topic = self.find(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r} with a configuration", path=self._directory)
        return topic

    def is_known(self, name: str) -> bool:
        """Whether the topic has a configuration: else neither retention nor compaction may touch it."""
        return name in self._topics

    def is_deleting(self, name: str) -> bool:
        """Whether the topic is going, but not gone: a folder of it could not be renamed."""
        return name in self._topics and self._topics[name].is_deleting

    def config_of(self, name: str) -> LogConfig:
        """Return the configuration of a topic's logs."""
        config = self._configs.get(name)
        if config is None:
            topic = self._topics.get(name)
            config = self._config.topic_config(KEEP_EVERYTHING if topic is None else topic.properties)
            self._configs[name] = config
        return config

    def folder_of(self, key: TopicPartition, directory: Path | None = None) -> PartitionFolder:
        """Return what a partition is loaded by; `directory` may be given if it is known."""
        topic = self._topics.get(key.topic)
        topic_id = None if topic is None else topic.topic_id
        return PartitionFolder(key, directory or self._partitions.directory_of(key), self.config_of(key.topic), topic_id)

    # --- at the start

    def finish_deletions(self, contents: FolderContents) -> list[TopicPartition]:
        """Go on with interrupted deletions; return the partitions that are to be loaded, in order. Raises StorageError."""
        going = {name for name, topic in self._topics.items() if topic.is_deleting}
        for directory in contents.going:
            self._partitions.remove_later(directory, self._config.topic_config({}).file_delete_delay_ms)
        failed = {key.topic for key in contents.partitions if key.topic in going and not self._partitions.remove(key)}
        if going:
            self._sync()
            self._drop(going - failed)
        return sorted(key for key in contents.partitions if key.topic not in going)

    def create_missing(self) -> None:
        """Make the partitions of known topics that are not there; one that cannot be made is offline."""
        made = []
        for key in [key for topic in self.topics().values() for key in self._missing(topic)]:
            logger.warning("%s-%d is missing and begins anew, empty", *key)
            try:
                self._partitions.create(self.folder_of(key))
                made.append(key)
            except TidelogError as error:
                self._partitions.fail(key, str(error))
        try:
            self._drop_checkpoints(made)
        except StorageError as error:
            logger.error("%s", error)

    # --- changing

    def create(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> Topic:
        """Create a topic. Raises TopicExistsError, InvalidArgumentError for what Kafka would refuse, StorageError."""
        check_topic_name(name)
        _check_partitions(partitions)
        if name in self._topics or self._partitions.keys_of(name):
            raise TopicExistsError(f"topic {name!r} is there already", path=self._directory)
        self._refuse_collision(name)
        texts = self._checked(properties)
        topic = Topic(name, new_topic_id(), partitions, texts)
        self._write({**self._topics, name: topic})
        try:
            self._create_partitions(topic)
        except BaseException:
            self._undo({other: one for other, one in self._topics.items() if other != name})
            raise
        logger.info("topic %s: created, partitions %d%s", name, partitions, _settings(texts))
        return topic

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Let a topic have more partitions, `partitions` in all.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError unless that is more than it has, StorageError.
        """
        before = self.get(name)
        _check_partitions(partitions)
        if partitions <= before.partitions:
            raise InvalidArgumentError(
                f"topic {name!r} gets no partitions that way", found=partitions, expected=f"more than {before.partitions}"
            )
        topic = replace(before, partitions=partitions)
        self._write({**self._topics, name: topic})
        try:
            self._create_partitions(topic)
        except BaseException:
            self._undo({**self._topics, name: before})
            raise
        logger.info("topic %s: partitions %d, %d before", name, partitions, before.partitions)
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic: its partitions are gone at once, their folders later.

        Raises UnknownTopicOrPartitionError; StorageError, after which it may be called again.
        """
        keys = self._partitions.keys_of(name)
        topic = self._topics.get(name)
        if topic is None and not keys:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}", path=self._directory)
        if topic is None:
            topic = Topic(name, new_topic_id(), max(key.partition for key in keys) + 1)
        if not topic.is_deleting:
            self._write({**self._topics, name: replace(topic, is_deleting=True)})
        failed = [key for key in keys if not self._partitions.remove(key)]
        self._sync()
        if failed:
            reason = self._partitions.failed[failed[0]]
            raise StorageError(f"topic {name!r} is not gone: {len(failed)} partitions: {reason}", path=self._directory)
        self._drop({name})
        logger.info("topic %s: deleted, its folders go in a while", name)

    def alter(self, name: str, properties: Mapping[str, PropertyValue]) -> Topic:
        """Give a topic these properties instead of those that it had.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError, StorageError.
        """
        topic = self.get(name).with_properties(self._checked(properties))
        self._write({**self._topics, name: topic})
        self._configure(name)
        logger.info("topic %s: configuration changed%s", name, _settings(topic.properties) or ", all defaults")
        return topic

    def adopt(self, name: str, properties: Mapping[str, PropertyValue]) -> Topic:
        """Give a configuration to a topic that was found without one. Raises InvalidArgumentError, StorageError."""
        keys = self._partitions.keys_of(name)
        if not keys or name in self._topics:
            raise InvalidArgumentError("no topic without a configuration", found=repr(name), path=self._directory)
        texts = self._checked(properties)
        logs = [self._partitions.logs[key] for key in keys if key in self._partitions.logs]
        ids = {log.topic_id for log in logs if log.topic_id is not None}
        if len(ids) > 1:
            found = ", ".join(sorted(map(format_topic_id, ids)))
            raise InvalidArgumentError(f"{name!r}: partitions of different topics of that name", found=found)
        topic = Topic(name, next(iter(ids), None) or new_topic_id(), max(key.partition for key in keys) + 1, texts)
        self._write({**self._topics, name: topic})
        for log in logs:
            log.assign_topic_id(topic.topic_id)
        self._configure(name)
        self.create_missing()
        logger.info("topic %s: adopted%s", name, _settings(texts))
        return topic

    # --- inside

    def _checked(self, properties: Mapping[str, PropertyValue]) -> dict[str, str]:
        texts = {name: _text(value) for name, value in unaliased(properties).items()}
        self._config.topic_config(texts)
        return texts

    def _refuse_collision(self, name: str) -> None:
        """Kafka refuses a topic whose name differs from another's in dots and underscores only: metrics would mix them up."""
        wanted = name.replace(".", "_")
        if "_" not in wanted:
            return
        for other in {key.topic for key in self._partitions.all_keys()} | self._topics.keys():
            if other.replace(".", "_") == wanted:
                raise InvalidArgumentError(f"topic {name!r} collides with another", found=repr(other), path=self._directory)

    def _missing(self, topic: Topic) -> list[TopicPartition]:
        there = set(self._partitions.keys_of(topic.name))
        return [key for key in (TopicPartition(topic.name, p) for p in range(topic.partitions)) if key not in there]

    def _create_partitions(self, topic: Topic) -> None:
        """Make the folders that are missing, all or none. Raises StorageError."""
        made: list[TopicPartition] = []
        try:
            for key in self._missing(topic):
                self._partitions.create(self.folder_of(key))
                made.append(key)
            self._drop_checkpoints(made)
            self._sync()
        except BaseException:
            for key in made:
                self._partitions.undo_create(key)
            raise

    def _drop_checkpoints(self, made: Iterable[TopicPartition]) -> None:
        """Have no checkpoint say of a partition that begins anew what was true of an old one. Raises StorageError.

        A recovery point that is too high would keep a recovery from looking at the records below it.
        """
        if any(self._partitions.is_in_checkpoints(key) for key in made):
            self._partitions.write_checkpoints()

    def _configure(self, name: str) -> None:
        """Tell a topic's logs the configuration. One that cannot follow is offline, and says so."""
        for key, log in self._partitions.logs.items():
            if key.topic == name:
                try:
                    log.update_config(self.config_of(name))
                except StorageError as error:
                    logger.error("%s: %s", log.directory, error)

    def _drop(self, topics: Iterable[str]) -> None:
        gone = set(topics)
        if gone:
            self._write({name: topic for name, topic in self._topics.items() if name not in gone})

    def _write(self, topics: dict[str, Topic]) -> None:
        try:
            write_topics(self._directory, topics)
        except BaseException:
            self._restore()
            raise
        self._take(topics)

    def _undo(self, topics: dict[str, Topic]) -> None:
        self._take(topics)
        self._restore()

    def _restore(self) -> None:
        """Have the file say what is true. If it cannot be written, the next start makes good what it says."""
        try:
            if read_topics(self._directory) != self._topics:
                write_topics(self._directory, self._topics)
        except TidelogError as error:
            logger.error("%s", error)

    def _take(self, topics: dict[str, Topic]) -> None:
        before = self._topics
        changed = {name for name, topic in topics.items() if before.get(name) is not topic} | (before.keys() - topics.keys())
        self._topics = topics
        self._partitions.changed |= changed
        for name in changed:
            self._configs.pop(name, None)

    def _sync(self) -> None:
        try:
            sync_directory(self._directory)
        except OSError as error:
            raise StorageError(f"cannot sync the data folder: {error.strerror}", path=self._directory) from error


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidArgumentError("a topic has at least one partition", found=partitions)


def _settings(properties: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in properties.items())


def _text(value: PropertyValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
