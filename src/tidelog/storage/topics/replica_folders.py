"""The replicas in a cluster member's data folder, as the cluster's metadata assigns them (KIP-500, KIP-516).

The controllers decide which replicas exist, and this class changes the folders accordingly:

| event | the folder | after a crash in between |
|---|---|---|
| the node is among a partition's replicas, and has no folder | is created | is empty, and used |
| the partition is deleted, or moves away, while the broker runs | becomes ``….<uuid>-delete``, removed later | is a stray |
| a start finds a stray | is renamed to ``….<uuid>-stray``, and kept | the next start renames it |
| a start finds ``-delete`` | is removed later | |
| settings of a topic or the broker change | is unchanged; the log applies the settings | |

A stray, as in Kafka, is a folder with an unknown topic id (the topic was deleted, and perhaps recreated, while the broker was
down), of an unknown partition, of a partition without a replica on this node, or without a topic id. In Kafka an empty folder
that a crash left before it got its id is a stray as well; here it is used. If topics may have no ids (ZooKeeper), a folder
without a topic id belongs to the topic of its name.

The broker creates each replica explicitly (`creations`), and makes one change at a time. `log_manager` creates a
`ReplicaFolders`, and keeps it until it closes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats import names
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.metadata.assumed_topic_id import AssumedTopicId, known_topic_id
from tidelog.model import TopicPartition
from tidelog.storage.folder.data_folder import FolderContents
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.cluster_metadata import ClusterMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions, Removal
from tidelog.storage.steps import Steps
from tidelog.storage.topics.new_folders import PARTITIONS_A_STEP, NewFolders
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_configs import TopicConfigs

logger = logging.getLogger("tidelog.storage")


class ReplicaFolders:
    """The replicas of `metadata`'s node in `directory`, with their logs in `partitions`."""

    def __init__(self, directory: Path, config: ManagerConfig, partitions: Partitions, metadata: ClusterMetadata) -> None:
        self._directory = directory
        self._partitions = partitions
        self._metadata = metadata
        self._folders = NewFolders(directory, partitions)
        self.table = TopicConfigs(config, partitions, self._properties_of)
        self.set_aside: list[TopicPartition] = []
        """The strays that this start has renamed."""
        self._strays: dict[TopicPartition, str] = {}
        """The strays that are still to be renamed, with the reasons."""

    # --- asking

    def topics(self) -> dict[str, Topic]:
        """Return the topics with a replica here, by name."""
        found = ((name, self.find(name)) for name in self._partitions.topics())
        return {name: topic for name, topic in found if topic is not None}

    def find(self, name: str) -> Topic | None:
        """Return the cluster's topic with this name, or None if there is no such topic."""
        image = self._metadata.image
        topic = image.topics.get(name)
        if topic is None or not topic.partitions:
            return None
        return Topic(name, topic.topic_id, max(topic.partitions) + 1, image.topic_config(name))

    def is_known(self, name: str) -> bool:
        """Whether the topic has a configuration. If not, retention and compaction must not change the topic."""
        return name in self._metadata.image.topics

    def is_wanted(self, key: TopicPartition) -> bool:
        """Whether this node has a replica of a partition."""
        partition = self._metadata.image.partition(*key)
        return partition is not None and self._metadata.node_id in partition.replicas

    def unfinished(self) -> list[str]:
        """Return the topics with a folder here that should be removed but could not be renamed."""
        return sorted({key.topic for key in self._partitions.failed if not self.is_wanted(key)})

    def folder_of(self, key: TopicPartition, directory: Path | None = None) -> PartitionFolder:
        """Return what is needed to load a partition. `directory` is its folder, if the caller knows it."""
        topic = self._metadata.image.topics.get(key.topic)
        topic_id = None if topic is None else known_topic_id(topic.topic_id)
        return PartitionFolder(key, directory or self._partitions.directory_of(key), self.table.config_of(key.topic), topic_id)

    # --- at the start

    def sort_out(self, contents: FolderContents) -> list[TopicPartition]:
        """Set strays aside. Return the partitions to load, in order. Raises StorageError."""
        delay_ms = self.table.config.topic_config({}).file_delete_delay_ms
        for directory in contents.going:
            self._partitions.remove_later(directory, delay_ms)
        kept = []
        for key, directory in sorted(contents.partitions.items()):
            reason = self._stray(key, directory)
            if reason is None:
                kept.append(key)
            else:
                self._strays[key] = reason
                self._remove(key)
                self.set_aside.append(key)
        if self.set_aside:
            self._folders.sync()
        return kept

    def _stray(self, key: TopicPartition, directory: Path) -> str | None:
        """Return why a folder is a stray, or None if it is a replica of this node."""
        if not self.is_wanted(key):
            return f"node {self._metadata.node_id} has no replica of the partition"
        try:
            topic_id = read_topic_id(directory / names.PARTITION_METADATA)
        except (CorruptCheckpointError, StorageError):
            return None  # Loading the log reports the error.
        wanted = self._metadata.image.topics[key.topic].topic_id
        if isinstance(wanted, AssumedTopicId) or (topic_id is None and self.table.config.has_topics_without_ids):
            return None
        if topic_id is None:
            return None if is_empty(directory) else "the folder has no topic id"
        return None if topic_id == wanted else "the folder belongs to a different topic with the same name"

    # --- changes

    def create(self, wanted: Mapping[TopicPartition, uuid.UUID]) -> Steps[dict[TopicPartition, PartitionLog]]:
        """Create replicas of partitions, each with its topic's id, and return the logs of all of them. Idempotent.

        A replica with a different topic id is deleted first, and a stray is set aside. A replica that cannot be created is marked
        offline with the reason. Offline replicas without a log are not returned.
        """
        partitions = self._partitions
        others = [key for key, topic_id in wanted.items() if self._is_of_another(key, topic_id)]
        try:
            yield from self.delete(others)
        except StorageError as error:
            logger.error("%s", error)
        missing = [
            key
            for key in wanted
            if key not in partitions.logs and not (key in partitions.failed and partitions.directory_of(key).exists())
        ]
        if missing:
            for name in {key.topic for key in missing}:
                self.table.forget(name)
            refused: dict[TopicPartition, str] = {}
            try:
                made = yield from self._folders.made(
                    missing, lambda key: self.folder_of(key)._replace(topic_id=known_topic_id(wanted[key])), refused
                )
                yield from self._folders.publish(made)
            except StorageError as error:
                refused = dict.fromkeys(missing, str(error))
            for key, reason in refused.items():
                partitions.fail(key, reason)
        found = {key: log for key in wanted if (log := partitions.logs.get(key)) is not None}
        for key, log in found.items():
            topic_id = known_topic_id(wanted[key])
            if log.topic_id is None and topic_id is not None:
                log.assign_topic_id(topic_id)
        return found

    def delete(self, keys: Iterable[TopicPartition]) -> Steps[None]:
        """Delete replicas. The replicas disappear at once, and their folders are removed later. Unknown replicas are ignored.

        Raises StorageError if folders cannot be renamed. These replicas are then offline, and the call may be repeated.
        """
        partitions, removals, refused = self._partitions, [], []
        there = [key for key in keys if partitions.state(key) is not None]
        for number, key in enumerate(there, start=1):
            is_stray, removal = key in self._strays, self._remove(key)
            if removal is None:
                refused.append(key)
            elif not is_stray:
                removals.append(removal)
            if number % PARTITIONS_A_STEP == 0:
                yield None
        if len(there) > len(refused):
            yield self._folders.sync
            if any(partitions.is_in_checkpoints(key) for key in there):
                yield partitions.drop_gone
            for removal in removals:
                partitions.remove_later(*removal)
        if refused:
            raise StorageError(
                f"{len(refused)} replicas could not be deleted: {partitions.failed[refused[0]]}", path=self._directory
            )

    # --- inside

    def _remove(self, key: TopicPartition) -> Removal | None:
        """Rename the folder of a replica or of a stray for removal. Return None if this fails, after marking the replica
        offline.
        """
        reason = self._strays.get(key)
        if reason is None:
            return self._partitions.remove(key, names.log_delete_dir_name(*key))
        name = names.log_stray_dir_name(*key)
        removal = self._partitions.remove(key, name, what="set aside")
        if removal is not None:
            logger.warning("%s: set aside as %s: %s", self._partitions.directory_of(key), name, reason)
            del self._strays[key]
        return removal

    def _properties_of(self, name: str) -> dict[str, str] | None:
        return self._metadata.image.topic_config(name) if self.is_known(name) else None

    def _is_of_another(self, key: TopicPartition, topic_id: uuid.UUID) -> bool:
        log = self._partitions.logs.get(key)
        if isinstance(topic_id, AssumedTopicId):
            return key in self._strays
        if log is not None:
            return log.topic_id not in (topic_id, None)
        if key not in self._partitions.failed or key in self._strays:
            return key in self._strays
        try:
            return read_topic_id(self._partitions.directory_of(key) / names.PARTITION_METADATA) not in (topic_id, None)
        except (CorruptCheckpointError, StorageError):
            return False


def is_empty(directory: Path) -> bool:
    """Whether a partition's folder holds no record and never held one: its only segments are empty and have base offset 0."""
    logs = list(directory.glob(f"*{names.LOG_SUFFIX}*"))
    return all(path.name == names.file_name(0, names.LOG_SUFFIX) and path.stat().st_size == 0 for path in logs)
