"""Reads several data folders as if they were one: the `log.dirs` of a broker (JBOD), the folders of several brokers, or several
backups.

A partition is read from one folder. If several folders have the partition, they have replicas of it, and the most complete
replica is read:

1. the replica with the highest last leader epoch: a longer replica with an older epoch ends with records that
   were never committed;
2. among equals, the replica with the highest log end, counted up to the highest high watermark in any of the folders;
3. among equals, the replica with the lowest log start, then the highest log end, then the first in the list.

A notice names the folder that is read, and shows how the other replicas differ. `tidelog verify --replicas` compares their bytes.

A broker that moves a partition between its folders (KIP-113) copies it to a folder whose name ends in ``-future``. Such a copy is
not read, and a notice names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.backup.opening import address_of
from tidelog.errors import DataDirNotFoundError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.files import Notices
from tidelog.formats.paths.file_path import AnyPath, FilePath
from tidelog.model import METADATA_TOPIC, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.claims import Claims, newest_epoch
from tidelog.reader.missing.missing_offsets import MissingOffsets

if TYPE_CHECKING:
    from tidelog.metadata.image import MetadataImage

FUTURE_SUFFIX = "-future"


class Replica(NamedTuple):
    """A replica of a partition, with the properties that decide which replica is read."""

    folder: LogDir
    epoch: int
    """The last leader epoch, -1 if the folder has no leader epochs."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None

    def completeness(self, high_watermark: int | None) -> tuple[int, int, int, int]:
        """Return a sort key that is larger for a more complete replica. `high_watermark` is the highest of all replicas."""
        committed = self.log_end_offset if high_watermark is None else min(self.log_end_offset, high_watermark)
        return self.epoch, committed, -self.log_start_offset, self.log_end_offset

    def __str__(self) -> str:
        epoch = f", epoch {self.epoch}" if self.epoch >= 0 else ""
        return f"{self.folder.path} (offsets {self.log_start_offset} to {self.log_end_offset}{epoch})"


def most_complete(replicas: Sequence[Replica]) -> Replica:
    """Return the replica to read, by the rules of this module."""
    known = [one.high_watermark for one in replicas if one.high_watermark is not None]
    return max(replicas, key=lambda one: one.completeness(max(known, default=None)))  # max() returns the first of equal replicas.


class LogDirs(LogDir):
    """The data folders at `paths`; `opened` opens a folder. A folder may have no partitions, as on a new disk.

    Raises the same errors as `LogDir`, and DataDirNotFoundError if no folder has a partition.
    """

    def __init__(self, paths: Sequence[AnyPath], *, skip_damaged: bool = False, opened: Callable[..., LogDir] = LogDir) -> None:
        self.folders = tuple(opened(path, skip_damaged=skip_damaged, may_be_empty=True) for path in paths)
        self.path = self.folders[0].path
        self.skip_damaged = skip_damaged
        self.notices = Notices()
        self._homes: dict[TopicPartition, LogDir] = {}
        if not self._partitions:
            raise DataDirNotFoundError("none of these folders holds a partition", path=self.address)

    def __repr__(self) -> str:
        return f"LogDirs({self.address!r})"

    @property
    def address(self) -> str:
        """The folders' paths, separated by colons. With this address another process can open the folders."""
        return address_of(*(folder.path for folder in self.folders))

    def directory(self, topic: str, partition: int) -> FilePath:
        return self.home(TopicPartition(topic, partition)).directory(topic, partition)

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        return self.home(TopicPartition(topic, partition)).log(topic, partition, message_format)

    def is_there(self, key: TopicPartition) -> bool:
        return any(folder.is_there(key) for folder in self.folders)

    def claims(self, key: TopicPartition) -> Claims:
        return self.home(key).claims(key)

    def missing_partitions(self, topic: str | None = None) -> list[MissingOffsets]:
        """Return the partitions that a checkpoint of any folder lists, but no folder has."""
        lost = {
            TopicPartition(one.topic, one.partition): one for folder in self.folders for one in folder.missing_partitions(topic)
        }
        return [one for key, one in sorted(lost.items()) if not self.is_there(key)]

    def look(self) -> None:
        for folder in self.folders:
            folder.look()
        self._homes.clear()
        self._forget()

    def log_sizes(self) -> dict[str, int]:
        return {address: size for folder in self.folders for address, size in folder.log_sizes().items()}

    def release(self, most: int) -> None:
        for folder in self.folders:
            folder.release(most // len(self.folders))

    def close(self) -> None:
        for folder in self.folders:
            folder.close()

    @property
    def metadata_path(self) -> FilePath:
        return next((folder.path for folder in self.folders if folder.has_metadata), self.path)

    @cached_property
    def image(self) -> MetadataImage | None:
        """The cluster metadata in the first folder that has any. A broker keeps its metadata in only one of its folders."""
        return next((found for folder in self.folders if (found := folder.image) is not None), None)

    @cached_property
    def _partitions(self) -> set[TopicPartition]:
        return {key for folder in self.folders for key in folder.partition_keys}

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for folder in self.folders:
            listed = folder.checkpoint(name)
            found |= {key: listed[key] for key in listed if key not in self._partitions or self.home(key) is folder}
        return found

    def home(self, key: TopicPartition) -> LogDir:
        """Return the folder from which a partition is read. Raises UnknownTopicOrPartitionError."""
        home = self._homes.get(key)
        if home is None:
            # Only one folder of a broker has the metadata log (`image`), which is not listed as a partition.
            if key.topic == METADATA_TOPIC:
                holders = [folder for folder in self.folders if folder.has_metadata][:1]
            else:
                holders = [folder for folder in self.folders if key in folder.partition_keys]
            if not holders:
                known = ", ".join(map(str, self.partitions(key.topic)))
                raise UnknownTopicOrPartitionError(
                    f"topic {key.topic!r} has no partition {key.partition}, only {known}", path=self.address
                )
            self._note_moves(key, holders)
            home = self._homes[key] = holders[0] if len(holders) == 1 else self._chosen(key, holders)
        return home

    def _chosen(self, key: TopicPartition, holders: Iterable[LogDir]) -> LogDir:
        replicas = []
        for folder in holders:
            with folder.log(*key) as log:
                epoch = newest_epoch(log.directory)
                known = -1 if epoch is None else epoch.epoch
                replicas.append(Replica(folder, known, log.log_start_offset, log.log_end_offset, log.high_watermark))
        chosen = most_complete(replicas)
        others = "; ".join(str(one) for one in replicas if one is not chosen)
        if any(one[1:4] != chosen[1:4] for one in replicas):
            self.notices.note(Path(names.log_dir_name(*key)), f"read from {chosen}, which is more complete than {others}")
        return chosen.folder

    def _note_moves(self, key: TopicPartition, holders: Sequence[LogDir]) -> None:
        stem = f"{names.log_dir_name(*key)}."
        for folder in self.folders:
            for name in folder.entries:
                if name.startswith(stem) and name.endswith(FUTURE_SUFFIX):
                    text = f"an unfinished move of the partition from {holders[0].path}: the copy is not read"
                    self.notices.note(folder.path / name, text)
