"""Creates, enlarges, configures, adopts and deletes topics of a data folder, each atomically even if a crash occurs.

The metadata log (`metadata_store`) decides which topics exist. A change costs one append to it, however many topics there are:

| | 1 | 2 | 3 | a start after a crash |
|---|---|---|---|---|
| create | records are on disk | folders are created | the data folder is synced | creates missing folders |
| add partitions | folders are created | they are synced | records are on disk | removes the unknown folders |
| delete | folders become ``….<uuid>-delete`` | that is synced | the record is on disk | continues with step 1 |
| alter, adopt | records are on disk | logs get the properties | | |

If a topic is in the metadata and one of its folders has a deletion marker (`DELETION_MARK`), the topic was being deleted. A
change that fails without a crash is undone: a failed creation leaves nothing behind. If that fails too, or if a deletion cannot
rename a folder or write the metadata log, the topic remains in deletion: `unfinished` names it, and the next attempt (a broker
retries by itself, see `broker.topics.topic_changes`) or the next start continues.

Changes are `Steps`: the caller may run other steps in between, and wait for disks on other threads. A new topic is in `topics()`
from its first step, so that its name is reserved. Its partitions appear after the last step.

Topics that the metadata lacks (in a copy of a folder, for example) have the configuration `KEEP_EVERYTHING` until they are
adopted. `log_manager` creates one `TopicLifecycle` and keeps it until it closes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.config import PropertyValue, unaliased
from tidelog.errors import (
    CorruptCheckpointError,
    InvalidArgumentError,
    StorageError,
    TidelogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats import names
from tidelog.formats.partition_metadata import format_topic_id, read_topic_id
from tidelog.metadata.records import TOPIC_RESOURCE, RemoveTopicRecord
from tidelog.model import TopicPartition
from tidelog.storage.folder.data_folder import FolderContents, new_topic_id
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.metadata_store import Change, MetadataStore
from tidelog.storage.metadata.topic_records import config_records, partition_records, topic_records
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import DELETION_MARK, Partitions, Removal
from tidelog.storage.steps import Steps
from tidelog.storage.topics.new_folders import PARTITIONS_A_STEP, NewFolders
from tidelog.storage.topics.new_topics import check_topic_name
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_configs import KEEP_EVERYTHING
from tidelog.storage.topics.topic_table import TopicTable

logger = logging.getLogger("tidelog.storage")

MAX_PARTITIONS = 2**31 - 1


class TopicLifecycle:
    """The topics of `directory` as in `store`, with their logs in `partitions`.

    `deleting` are the topics whose deletion an earlier owner has begun.
    """

    def __init__(
        self, directory: Path, config: ManagerConfig, partitions: Partitions, store: MetadataStore, deleting: Iterable[str] = ()
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._store = store
        self._folders = NewFolders(directory, partitions)
        self.table = TopicTable(config, partitions, store)
        self._deleting = set(deleting)
        self._busy: set[str] = set()
        """Topics that are being created, enlarged or deleted at the moment."""
        self._removals: dict[str, list[Removal]] = {}
        """Folders of topics whose deletion is unfinished. They are kept, because they show this to the next start."""

    # --- asking

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""
        return {name: topic for name, topic in self.table.by_name.items() if name not in self._deleting}

    def find(self, name: str) -> Topic | None:
        """Return the topic with this name, or None if no topic with a configuration has this name."""
        return None if name in self._deleting else self.table.by_name.get(name)

    def get(self, name: str) -> Topic:
        """Return a topic that has a configuration. Raises UnknownTopicOrPartitionError."""
        topic = self.find(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r} with a configuration", path=self._directory)
        return topic

    def is_known(self, name: str) -> bool:
        """Whether the topic has a configuration. If not, retention and compaction must not change the topic."""
        return name in self.table.by_name or name in self._deleting

    def is_deleting(self, name: str) -> bool:
        """Whether the topic is being deleted."""
        return name in self._deleting

    def is_wanted(self, key: TopicPartition) -> bool:
        """Whether an offline partition should be brought online again. False if its topic is being deleted."""
        return key.topic not in self._deleting

    def unfinished(self) -> list[str]:
        """Return the topics whose deletion has failed on disk. Call `delete` again to continue it."""
        return sorted(self._deleting - self._busy)

    def folder_of(self, key: TopicPartition, directory: Path | None = None) -> PartitionFolder:
        """Return what is needed to load a partition. `directory` is its folder, if the caller knows it."""
        topic = self.table.by_name.get(key.topic)
        topic_id = None if topic is None else topic.topic_id
        return PartitionFolder(key, directory or self._partitions.directory_of(key), self.table.config_of(key.topic), topic_id)

    # --- at the start

    def sort_out(self, contents: FolderContents) -> list[TopicPartition]:
        """Continue interrupted deletions. Return the partitions to load, in order. Raises StorageError."""
        by_id = {topic.topic_id: name for name, topic in self.table.by_name.items()}
        for directory in contents.going:
            if directory.name.rpartition(".")[2].startswith(DELETION_MARK):
                topic_id = _topic_id(directory)
                name = by_id.get(topic_id) if topic_id else names.parse_topic_partition_name(directory.name).topic
                if name in self.table.by_name:
                    self._deleting.add(name)
        delay_ms = self.table.config.topic_config({}).file_delete_delay_ms
        removals = {directory: Removal(directory, delay_ms) for directory in contents.going}
        self._remove_unknown(contents)
        failed = set()
        for key in contents.partitions:
            if key.topic in self._deleting:
                removal = self._partitions.remove(key)
                if removal is None:
                    failed.add(key.topic)
                else:
                    removals[removal.directory] = removal
        gone = self._deleting - failed
        if gone:
            self._folders.sync()
            self._store.commit(
                [RemoveTopicRecord(self.table.by_name[name].topic_id) for name in gone if name in self.table.by_name]
            )
            self._deleting -= gone
            for name in gone:
                self.table.refresh(name)
        for removal in removals.values():
            # The folders that mark unfinished deletions are kept.
            if not failed or names.parse_topic_partition_name(removal.directory.name).topic not in failed:
                self._partitions.remove_later(*removal)
        return sorted(key for key in contents.partitions if key.topic not in gone | failed)

    def _remove_unknown(self, contents: FolderContents) -> None:
        """Remove empty partitions of known topics that the metadata lacks: they were being added."""
        for key, directory in list(contents.partitions.items()):
            topic = self._store.image.topics.get(key.topic)
            if topic is not None and key.partition not in topic.partitions and _is_empty(directory, topic.topic_id):
                del contents.partitions[key]
                removal = self._partitions.remove(key)
                if removal is not None:
                    self._partitions.remove_later(*removal)

    def create_missing(self) -> None:
        """Create missing partitions of known topics. A partition that cannot be created is offline."""
        made = []
        for key in [key for topic in self.topics().values() for key in self._missing(topic)]:
            logger.warning("%s-%d is missing: creating it as an empty partition", *key)
            try:
                self._partitions.create(self.folder_of(key))
                made.append(key)
            except TidelogError as error:
                self._partitions.fail(key, str(error))
        try:
            self._drop_checkpoints(made)
        except StorageError as error:
            logger.error("%s", error)

    # --- changes

    def create(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> Steps[Topic]:
        """Create a topic. Raises TopicExistsError, InvalidArgumentError for what Kafka would refuse, StorageError."""
        check_topic_name(name)
        _check_partitions(partitions)
        if self.is_known(name) or self._partitions.keys_of(name):
            state = "is being deleted" if self.is_deleting(name) else "already exists"
            raise TopicExistsError(f"topic {name!r} {state}", path=self._directory)
        self.table.refuse_collision(name)
        texts = self._checked(properties)
        topic = Topic(name, new_topic_id(), partitions, texts)
        change = self._store.append(topic_records(topic, self._store.node_id, self._store.directory_id))
        self.table.refresh(name)
        self._busy.add(name)
        try:
            yield change
            try:
                yield from self._folders.publish((yield from self._made(self._missing(topic))))
            except Exception:
                yield from self._undo_create(topic)
                raise
        finally:
            self._busy.discard(name)
        logger.info("topic %s: created, partitions %d%s", name, partitions, _settings(texts))
        return topic

    def add_partitions(self, name: str, partitions: int) -> Steps[Topic]:
        """Increase a topic's partitions to `partitions`.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError if the topic already has as many partitions, StorageError.
        """
        before = self.get(name)
        _check_partitions(partitions)
        if partitions <= before.partitions:
            raise InvalidArgumentError(
                f"topic {name!r} already has {before.partitions} partitions",
                found=partitions,
                expected=f"more than {before.partitions}",
            )
        added = range(before.partitions, partitions)
        if name in self._busy:
            raise InvalidArgumentError(f"topic {name!r} is being changed: try again later", path=self._directory)
        self._busy.add(name)
        try:
            store = self._store
            there = set(self._partitions.keys_of(name))
            keys = [TopicPartition(name, number) for number in added]
            made = yield from self._made([key for key in keys if key not in there])
            try:
                change = store.append(partition_records(before.topic_id, added, store.node_id, store.directory_id))
                self.table.refresh(name)
                yield change
            except GeneratorExit:
                for log in made:
                    log.close_handlers()
                raise
            except StorageError:
                self._folders.unmake(made)
                raise
            yield from self._folders.publish(made)
        finally:
            self._busy.discard(name)
        topic = self.get(name)
        logger.info("topic %s: now has %d partitions, had %d", name, partitions, before.partitions)
        return topic

    def delete(self, name: str) -> Steps[None]:
        """Delete a topic. Its partitions disappear at once, and their folders are removed later.

        Raises UnknownTopicOrPartitionError, and StorageError, after which the call may be repeated.
        """
        keys = self._partitions.keys_of(name)
        topic = self.table.by_name.get(name)
        if name in self._busy or (topic is None and not keys):
            self._store.restore()
            if name not in self.table.by_name:
                self._deleting.discard(name)
            raise UnknownTopicOrPartitionError(f"no topic {name!r}", path=self._directory)
        self._busy.add(name)
        try:
            if topic is None and name not in self._deleting:
                # Then the next start finds the unfinished deletion.
                topic = self._found(name, {key: _text(value) for key, value in KEEP_EVERYTHING.items()})
                yield self._register(topic)
            self._deleting.add(name)
            self._partitions.changed.add(name)
            failed = 0
            removals = self._removals.setdefault(name, [])
            for i, key in enumerate(keys):
                if i % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
                    yield None
                removal = self._partitions.remove(key)
                if removal is None:
                    failed, reason = failed + 1, self._partitions.failed[key]
                else:
                    removals.append(removal)
            yield self._folders.sync
            if failed:
                raise StorageError(
                    f"topic {name!r} was not deleted: {failed} of its partitions could not be removed: {reason}",
                    path=self._directory,
                )
            if topic is not None:
                yield self._store.append([RemoveTopicRecord(topic.topic_id)])
            self._deleting.discard(name)
            self.table.refresh(name)
            for removal in self._removals.pop(name):
                self._partitions.remove_later(*removal)
        finally:
            self._busy.discard(name)
        logger.info("topic %s: deleted; its folders will be removed later", name)

    def alter(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[Topic]:
        """Replace a topic's properties.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError, StorageError.
        """
        before, texts = self.get(name), self._checked(properties)
        change = self._store.append(config_records(TOPIC_RESOURCE, name, before.properties, texts))
        self.table.refresh(name)
        yield change
        self.table.configure_logs(name)
        logger.info("topic %s: configuration changed%s", name, _settings(texts) or ", all defaults")
        return self.get(name)

    def adopt(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[Topic]:
        """Give a configuration to a topic that was found without one. Raises InvalidArgumentError, StorageError."""
        keys = self._partitions.keys_of(name)
        if not keys or self.is_known(name):
            raise InvalidArgumentError(
                "the topic does not exist, or already has a configuration", found=repr(name), path=self._directory
            )
        texts = self._checked(properties)
        logs = self._logs_of(name)
        ids = {log.topic_id for log in logs if log.topic_id is not None}
        if len(ids) > 1:
            found = ", ".join(sorted(map(format_topic_id, ids)))
            raise InvalidArgumentError(f"the partitions of {name!r} belong to different topics with the same name", found=found)
        topic = self._found(name, texts)
        yield self._register(topic)
        for log in logs:
            log.assign_topic_id(topic.topic_id)
        self.table.configure_logs(name)
        self.create_missing()
        logger.info("topic %s: adopted%s", name, _settings(texts))
        return topic

    # --- inside

    def _logs_of(self, name: str) -> list[PartitionLog]:
        keys = self._partitions.keys_of(name)
        return [self._partitions.logs[key] for key in keys if key in self._partitions.logs]

    def _found(self, name: str, properties: dict[str, str]) -> Topic:
        """Return a topic that was found without a configuration, with the topic id in its partitions."""
        ids = (log.topic_id for log in self._logs_of(name) if log.topic_id is not None)
        last = max(key.partition for key in self._partitions.keys_of(name))
        return Topic(name, next(ids, None) or new_topic_id(), last + 1, properties)

    def _register(self, topic: Topic) -> Change:
        """Add a topic that was found without a configuration to the metadata."""
        epochs = (log.leader_epochs.latest_epoch or 0 for log in self._logs_of(topic.name))
        store = self._store
        change = store.append(topic_records(topic, store.node_id, store.directory_id, leader_epoch=max(epochs, default=0)))
        self.table.refresh(topic.name)
        return change

    def _checked(self, properties: Mapping[str, PropertyValue]) -> dict[str, str]:
        texts = {name: _text(value) for name, value in unaliased(properties).items()}
        self.table.config.topic_config(texts)
        return texts

    def _missing(self, topic: Topic) -> list[TopicPartition]:
        there = set(self._partitions.keys_of(topic.name))
        image = self._store.image
        numbers = image.partitions_on(image.topics[topic.name], self._store.node_id)
        return [key for key in (TopicPartition(topic.name, number) for number in numbers) if key not in there]

    def _made(self, missing: list[TopicPartition]) -> Steps[list[PartitionLog]]:
        return self._folders.made(missing, self.folder_of)

    def _undo_create(self, topic: Topic) -> Steps[None]:
        """Revert the metadata. If the metadata cannot be written, the topic remains in deletion."""
        try:
            change = self._store.append([RemoveTopicRecord(topic.topic_id)])
            self.table.refresh(topic.name)
            yield change
        except StorageError as error:
            self._deleting.add(topic.name)
            logger.error("topic %s: not created, but could not be removed from the metadata: %s", topic.name, error)

    def _drop_checkpoints(self, made: Iterable[TopicPartition]) -> None:
        """Remove the checkpoint lines of new partitions, which are empty. Raises StorageError.

        A recovery point that is too high would make recovery skip records.
        """
        if any(self._partitions.is_in_checkpoints(key) for key in made):
            self._partitions.write_checkpoints()


def _topic_id(directory: Path) -> uuid.UUID | None:
    try:
        return read_topic_id(directory / names.PARTITION_METADATA)
    except (CorruptCheckpointError, StorageError):
        return None


def _is_empty(directory: Path, topic_id: uuid.UUID) -> bool:
    """Whether a partition's folder has no record, and has either this topic id or no topic id."""
    return _topic_id(directory) in (topic_id, None) and not any(
        path.stat().st_size for path in directory.glob(f"*{names.LOG_SUFFIX}*")
    )


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidArgumentError("a topic must have at least one partition", found=partitions)


def _settings(properties: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in properties.items())


def _text(value: PropertyValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
