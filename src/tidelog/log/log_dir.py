"""A data folder (one entry of Kafka's ``log.dirs``): all its partitions, and the checkpoints that belong to them (spec §1, §7).

Only partitions are seen: folders going, unclaimed or arriving (``-delete``, ``-stray``, ``-future``), the metadata log and
the remote index cache are not, nor is a folder that holds no file of a log. A checkpoint that is damaged counts as empty, as
in Kafka, and a notice says so. Listing reads names only; a partition is opened when it is asked for.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from tidelog.errors import (
    CorruptCheckpointError,
    DataDirNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from tidelog.log import names
from tidelog.log.checkpoints import read_offset_checkpoint
from tidelog.log.files import Notices
from tidelog.log.log import Log
from tidelog.log.names import TopicPartition

_FILES_OF_A_LOG = (names.LOG_SUFFIX, names.LOG_SUFFIX + names.SWAP_SUFFIX)


class LogDir:
    """A data folder at `path`. Raises DataDirNotFoundError where that is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.notices = Notices()
        if not self._partitions:
            hint = ""
            if any(name.endswith(_FILES_OF_A_LOG) for name in self._names):
                hint = "; this is a partition's folder, its parent is the data folder"
            raise DataDirNotFoundError(f"no partition of a Kafka log here{hint}", path=self.path)

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic, both in order."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
            topics.setdefault(topic, []).append(partition)
        return topics

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions in order. Raises UnknownTopicOrPartitionError."""
        found = sorted(key.partition for key in self._partitions if key.topic == topic)
        if not found:
            raise UnknownTopicOrPartitionError(f"no topic {topic!r}", path=self.path)
        return found

    def directory(self, topic: str, partition: int) -> Path:
        """Return a partition's folder. Raises UnknownTopicOrPartitionError."""
        if TopicPartition(topic, partition) not in self._partitions:
            known = ", ".join(str(number) for number in self.partitions(topic))
            raise UnknownTopicOrPartitionError(f"no partition {partition} of topic {topic!r}, only {known}", path=self.path)
        return self.path / names.log_dir_name(topic, partition)

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        """Open a partition, with the checkpoints' log start offset and high watermark.

        Raises UnknownTopicOrPartitionError, and what `Log.open` raises.
        """
        directory = self.directory(topic, partition)
        key = TopicPartition(topic, partition)
        try:
            return Log.open(
                directory,
                log_start_offset=self.log_start_offsets.get(key),
                high_watermark=self.high_watermarks.get(key),
                message_format=message_format,
            )
        except NotFoundError as error:
            raise UnknownTopicOrPartitionError(f"partition {partition} of topic {topic!r} is gone", path=directory) from error

    @cached_property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Log start offsets, where they differ from the first segment's base."""
        return self._checkpoint(names.LOG_START_OFFSET_CHECKPOINT)

    @cached_property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as of the last checkpoint."""
        return self._checkpoint(names.HIGH_WATERMARK_CHECKPOINT)

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        path = self.path / name
        try:
            return read_offset_checkpoint(path)
        except CorruptCheckpointError as error:
            self.notices.tell(path, f"{error}: taken as empty")
            return {}

    @cached_property
    def _names(self) -> list[str]:
        try:
            return [entry.name for entry in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            raise DataDirNotFoundError("no such folder", path=self.path) from None
        except OSError as error:
            raise StorageError(f"cannot list a folder: {error.strerror}", path=self.path) from error

    @cached_property
    def _partitions(self) -> set[TopicPartition]:
        found = set()
        for name in self._names:
            if names.is_suffixed_dir(name):
                continue
            try:
                key = names.parse_topic_partition_name(name)
            except InvalidArgumentError:
                continue
            if key.topic != names.METADATA_TOPIC and names.log_dir_name(*key) == name and self._holds_a_log(name):
                found.add(key)
        return found

    def _holds_a_log(self, name: str) -> bool:
        try:
            files = [file.name for file in (self.path / name).iterdir()]
        except OSError:
            return False  # No folder, or gone since it was listed.
        return names.PARTITION_METADATA in files or any(file.endswith(_FILES_OF_A_LOG) for file in files)
