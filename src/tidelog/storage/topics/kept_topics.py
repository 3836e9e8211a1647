"""The interface of a data folder's topics, which the folder's owner uses. `TopicLifecycle` and `ReplicaFolders` implement it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tidelog.model import TopicPartition
from tidelog.storage.folder.data_folder import FolderContents
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_configs import TopicConfigs


class KeptTopics(Protocol):
    """The topics of one data folder."""

    @property
    def table(self) -> TopicConfigs:
        """The configurations of the topics' logs."""

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""

    def find(self, name: str) -> Topic | None:
        """Return the topic with this name, or None if no topic with a configuration has this name."""

    def is_known(self, name: str) -> bool:
        """Whether the topic has a configuration. If not, retention and compaction must not change the topic."""

    def is_wanted(self, key: TopicPartition) -> bool:
        """Whether a partition should exist in this folder."""

    def unfinished(self) -> list[str]:
        """Return the topics whose folders should be removed but could not be renamed."""

    def folder_of(self, key: TopicPartition, directory: Path | None = None) -> PartitionFolder:
        """Return what is needed to load a partition. `directory` is its folder, if the caller knows it."""

    def sort_out(self, contents: FolderContents) -> list[TopicPartition]:
        """At startup, remove the folders that should not exist. Return the partitions to load, in order. Raises StorageError."""
