"""Adds one topic with its records to a data folder, atomically: `new_topics` has the steps, and what a crash leaves."""

from __future__ import annotations

import resource
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.storage.folder import data_folder
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.topics.new_topics import LEADER_EPOCH, NewTopics, StagedTopic

__all__ = ["LEADER_EPOCH", "NewTopic"]

_FILES_PER_LOG = 3
_SPARE_FILES = 64


class NewTopic:
    """Writes a topic of `partitions` partitions into the data folder `directory`, which is created if missing.

    A context manager. Append partition p's batches to `logs[p]`, with leader epoch `LEADER_EPOCH`, then call `commit` to publish
    the topic. Leaving the context without `commit` leaves nothing behind. `properties` are the topic's, as text under Kafka's
    names. For `topic_id` see `StagedTopic`.

    Raises InvalidArgumentError for an illegal name, number or property. Entering raises TopicExistsError, CorruptCheckpointError
    for a damaged topics file, and StorageError, also if a broker or another import holds the folder.
    """

    def __init__(
        self,
        directory: Path,
        topic: str,
        partitions: int,
        properties: Mapping[str, str],
        clock: Clock,
        *,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self._staged = StagedTopic(topic, partitions, properties, topic_id=topic_id)
        self._all = NewTopics(directory, clock)
        self.directory = directory
        self.topic = self._staged.topic

    @property
    def logs(self) -> list[PartitionLog]:
        """The partitions' logs."""
        return self._staged.logs

    def __enter__(self) -> NewTopic:
        _allow_open_files(self.topic.partitions * _FILES_PER_LOG + _SPARE_FILES)
        self._all.__enter__()
        try:
            self._all.add(self._staged)
        except BaseException:
            self._all.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._all.__exit__(kind, error, trace)

    def commit(self) -> None:
        """Finish and sync every partition, then publish all of them. Raises StorageError; after an error nothing is left
        behind.
        """
        self._all.commit()


def _allow_open_files(count: int) -> None:
    """Raise this process's limit of open files to the maximum. Raises InvalidArgumentError if `count` files exceed it."""
    data_folder.raise_open_files_limit()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < count:
        raise InvalidArgumentError(
            f"{(count - _SPARE_FILES) // _FILES_PER_LOG} partitions need {count} open files: raise the limit with ulimit -n",
            found=f"a limit of {limit}",
            expected=f"a limit of at least {count}",
        )
