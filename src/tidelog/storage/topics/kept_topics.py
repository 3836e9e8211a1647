"""The interface of a data folder's topics for its owner, implemented by `TopicLifecycle` and `ReplicaFolders`."""

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
        """Return a topic that has a configuration, None if there is none of that name."""

    def is_known(self, name: str) -> bool:
        """Whether the topic has a configuration: otherwise retention and compaction must not touch it."""

    def is_wanted(self, key: TopicPartition) -> bool:
        """Whether a partition should exist."""

    def unfinished(self) -> list[str]:
        """Return the topics whose folders should be removed but could not be renamed."""

    def folder_of(self, key: TopicPartition, directory: Path | None = None) -> PartitionFolder:
        """Return what is needed to load a partition; `directory` may be given if it is known."""

    def sort_out(self, contents: FolderContents) -> list[TopicPartition]:
        """At startup, remove the folders that should not exist; return the partitions to load, in order. Raises StorageError."""
