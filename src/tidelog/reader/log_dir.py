"""A data folder (one entry of Kafka's ``log.dirs``): its partitions and their checkpoints (spec §1, §7).

These are not partitions: folders whose names end in ``-delete``, ``-stray`` or ``-future``, the remote index cache, and folders
without a log's files. The metadata log can be read by its name, but is not listed. A damaged checkpoint counts as empty, as in
Kafka, and a notice says so. Listing reads only names; partitions are opened on request.

`missing_partitions` returns the partitions that a checkpoint lists and that have no folder:

| listed in | reported |
|---|---|
| recovery-point, log-start-offset, cleaner | always, because Kafka rewrites these checkpoints when it deletes a partition |
| replication only | if this checkpoint is newer than the recovery points: a deletion does not rewrite it at once |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.backup.opening import address_of, folder_at, refresh
from tidelog.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    DataDirNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    StorageError,
    TidelogError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.files import Notices
from tidelog.formats.names import MAX_NAME_LENGTH
from tidelog.formats.paths.file_path import AnyPath, FilePath
from tidelog.model import METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC, TopicPartition
from tidelog.near_names import near_topics
from tidelog.objects.opening import log_sizes
from tidelog.reader.log import Log
from tidelog.reader.missing.claims import Claims
from tidelog.reader.missing.missing_offsets import MissingOffsets

if TYPE_CHECKING:
    from tidelog.metadata.image import MetadataImage

_SHOWN_PARTITIONS = 5
_OF_A_LOOK = ("_partitions", "log_start_offsets", "high_watermarks", "recovery_points", "cleaner_offsets")
"""The cached properties that depend on the folder's state as of the last `look`."""
_MOST_LISTED = 200
"""At most this many folders are searched for the data folder that the user probably meant."""


class LogDir:
    """The data folder at `path`, a path or a `file:` URL. With `skip_damaged`, its logs skip damage.

    Raises DataDirNotFoundError if `path` is not a folder or, unless it `may_be_empty`, holds no partition, and
    InvalidArgumentError for an address with another scheme.
    """

    def __init__(self, path: AnyPath, *, skip_damaged: bool = False, may_be_empty: bool = False) -> None:
        self.path = folder_at(path)
        self.skip_damaged = skip_damaged
        self.notices = Notices()
        if not self._partitions and not may_be_empty:
            raise DataDirNotFoundError(f"not a data folder: it holds no partition{self._hint()}", path=self.path)

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"

    @property
    def address(self) -> str:
        """An address with which another process can open the folder."""
        return address_of(self.path)

    @property
    def metadata_path(self) -> FilePath:
        """The data folder that contains the cluster metadata: topics and their settings."""
        return self.path

    def home(self, key: TopicPartition) -> LogDir:
        """Return the data folder from which a partition is read. Raises UnknownTopicOrPartitionError if there are several folders
        and none holds it.
        """
        return self

    @property
    def has_metadata(self) -> bool:
        """Whether the data folder contains a metadata log."""
        return f"{METADATA_TOPIC}-0" in self._names

    @property
    def entries(self) -> list[str]:
        """The names in the folder as of the last listing."""
        return self._names

    @property
    def partition_keys(self) -> set[TopicPartition]:
        """The folder's partitions as of the last listing."""
        return self._partitions

    def look(self) -> None:
        """Update to the folder's current state. A folder that caches nothing between calls is always current."""
        refresh(self.path)

    def look_again(self) -> bool:
        """Update to the folder's current state after a file changed, and open every log again.

        Returns False if a log in object storage is gone or shorter: its bucket is being emptied or overwritten. Local folders are
        not checked, because a broker may remove their segments.
        """
        before = self.log_sizes()
        self.release(0)
        self.look()
        now = self.log_sizes()
        return all(now.get(address, -1) >= size for address, size in before.items())

    def log_sizes(self) -> dict[str, int]:
        """The sizes of the logs in object storage, by address, as of the last listing."""
        return log_sizes(self.path)

    def _forget(self, *more: str) -> None:
        """Drop the cached partitions, checkpoints and properties named in `more`, so that they are read again when needed."""
        for cached in (*_OF_A_LOOK, *more):
            self.__dict__.pop(cached, None)

    def release(self, most: int) -> None:
        """Close all open files. If more than `most` logs are cached, drop them."""
        self.close()

    def close(self) -> None:
        """Close all files that are kept open."""

    def _hint(self) -> str:
        """Return a hint that completes an error message: what the folder is, or which folder was probably meant."""
        from tidelog.reader.metadata_log import metadata_dir  # The import takes a while.

        if not self._names:
            return ", it is empty"
        if any(map(names.is_log_file, self._names)):
            return "; it is a partition's folder, and its parent is the data folder"
        if lost := self.missing_partitions():
            shown = ", ".join(f"{one.topic}-{one.partition}" for one in lost[:_SHOWN_PARTITIONS])
            return f", but checkpoints name {len(lost)}: {shown}{', ...' if len(lost) > _SHOWN_PARTITIONS else ''}"
        found = [name for name in sorted(self._names)[:_MOST_LISTED] if _partitions_in(self.path / name)]
        if found:
            shown = ", ".join(found[:_SHOWN_PARTITIONS]) + (", ..." if len(found) > _SHOWN_PARTITIONS else "")
            return (
                f"; its subfolder {shown} is a data folder" if len(found) == 1 else f"; its subfolders {shown} are data folders"
            )
        if metadata_dir(self.path).is_dir():
            return ", only a KRaft metadata log; tidelog dump shows its files"
        if _partitions_in(self.path.absolute().parent):
            return "; its parent is a data folder"
        return ""

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic; topics and partitions are in ascending order."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
            topics.setdefault(topic, []).append(partition)
        return topics

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions in ascending order. Raises UnknownTopicOrPartitionError."""
        among = self._metadata_partitions if topic == METADATA_TOPIC else self._partitions
        found = sorted(key.partition for key in among if key.topic == topic)
        if not found:
            lost = len(self.missing_partitions(topic))
            hint = near_topics(topic, self.topics())
            if lost:
                hint = f", but a checkpoint names it: {lost} partition{'s are' if lost > 1 else ' is'} missing"
            raise UnknownTopicOrPartitionError(f"no topic {topic!r}{hint}", path=self.address)
        return found

    def directory(self, topic: str, partition: int) -> FilePath:
        """Return a partition's folder. Raises UnknownTopicOrPartitionError."""
        key = TopicPartition(topic, partition)
        if key not in self._partitions and key not in self._metadata_partitions:
            known = ", ".join(str(number) for number in self.partitions(topic))
            if any(lost.partition == partition for lost in self.missing_partitions(topic)):
                known += "; a checkpoint names it: it is missing"
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {partition}, only {known}", path=self.path)
        return self.path / names.log_dir_name(topic, partition)

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        """Open a partition, with the checkpoints' log start offset and high watermark.

        Raises UnknownTopicOrPartitionError, and what `Log.open` raises.
        """
        directory = self.directory(topic, partition)
        # Read the checkpoints before listing the folder, so that the partitions in them existed before the listing.
        claims = self.claims(TopicPartition(topic, partition))
        try:
            return Log.open(
                directory,
                log_start_offset=claims.log_start_offset,
                high_watermark=claims.high_watermark,
                message_format=message_format,
                claims=claims,
                skip_damaged=self.skip_damaged,
            )
        except NotFoundError as error:
            raise UnknownTopicOrPartitionError(
                f"partition {partition} of topic {topic!r} no longer exists", path=directory
            ) from error

    def is_there(self, key: TopicPartition) -> bool:
        """Return whether a partition's folder exists now, possibly under a name with a suffix."""
        name, there = names.log_dir_name(*key), self._list()
        return (name in there and self._holds_a_log(name)) or self._is_moving(name, there)

    def claims(self, key: TopicPartition) -> Claims:
        """Return what the folder's checkpoints say about a partition."""
        return Claims(
            self.recovery_points.get(key),
            self.high_watermarks.get(key),
            self.log_start_offsets.get(key),
            self.cleaner_offsets.get(key),
            is_set_compacted=partial(self._is_set_compacted, key.topic),
            is_tiered=partial(self._is_tiered, key.topic),
            was_closed=(self.path / names.CLEAN_SHUTDOWN_FILE).exists(),
        )

    def _is_set_compacted(self, topic: str) -> bool:
        """Return whether the folder has cluster metadata that sets cleanup.policy=compact for a topic."""
        return self.image is not None and "compact" in self.image.topic_config(topic).get("cleanup.policy", "")

    def _is_tiered(self, topic: str) -> bool:
        """Return whether a topic may be tiered: according to the cluster metadata in the folder, or else because the folder lists
        remote segments.
        """
        if self.image is not None and topic in self.image.topics:
            return self.image.topic_config(topic).get("remote.storage.enable") == "true"
        return any(key.topic == REMOTE_LOG_METADATA_TOPIC for key in self._partitions)

    @cached_property
    def image(self) -> MetadataImage | None:
        """The cluster metadata in the folder, None if it is missing or cannot be read."""
        # Read on demand, because it takes time.
        from tidelog.reader.metadata_log import read_metadata_log

        try:
            found = read_metadata_log(self.path)
        except TidelogError:
            return None
        return None if found is None else found.image

    def missing(self, topic: str | None = None, partitions: Iterable[int] | None = None) -> list[MissingOffsets]:
        """Return missing partitions (unless `partitions` is given) and missing offsets of existing partitions, for one topic or
        for all topics (`topic` is None).

        Reads the end of each segment. A notice reports logs with a damaged end. Raises UnknownTopicOrPartitionError for a given
        partition, SegmentChangedError, StorageError.
        """
        found = [] if partitions else self.missing_partitions(topic)
        for name, known in self.topics().items():
            if topic in (None, name):
                for partition in partitions or known:
                    with self.log(name, partition) as log:
                        found += self.missing_of(log)
        return found

    def missing_of(self, log: Log, start_offset: int = 0) -> list[MissingOffsets]:
        """Return `Log.missing` for offsets at or after `start_offset`. If the log's end is damaged, log a notice and return an
        empty list.
        """
        try:
            return log.missing(start_offset)
        except CorruptBatchError as error:
            self.notices.note(log.directory, f"cannot determine what is missing: {error}")
            return []

    def missing_partitions(self, topic: str | None = None) -> list[MissingOffsets]:
        """Return, in ascending order, the partitions that a checkpoint lists and that have no folder, for one topic or for all
        topics.
        """
        named = {
            names.RECOVERY_POINT_CHECKPOINT: self.recovery_points,
            names.LOG_START_OFFSET_CHECKPOINT: self.log_start_offsets,
            names.CLEANER_CHECKPOINT: self.cleaner_offsets,
        }
        if self._is_written_later(names.HIGH_WATERMARK_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT):
            named[names.HIGH_WATERMARK_CHECKPOINT] = self.high_watermarks
        keys = {key for offsets in named.values() for key in offsets if topic in (None, key.topic)}
        keys -= self._partitions
        if not keys:
            return []
        # Folders may have appeared since the listing. The folder of a partition that is being deleted or moved has a suffix.
        there = self._list()
        found = []
        for key in sorted(keys):
            name = names.log_dir_name(*key)
            if key.topic == METADATA_TOPIC or (name in there and self._holds_a_log(name)) or self._is_moving(name, there):
                continue
            says = next(checkpoint for checkpoint, offsets in named.items() if key in offsets)
            claims = self.claims(key)
            end = max(offset or 0 for offset in claims[:3])
            reason = f"{says} names it, and {'its folder holds no log' if name in there else 'there is no such folder'}"
            found.append(MissingOffsets(*key, claims.log_start_offset or 0, end, "partition", reason))
        return found

    @cached_property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """The recovery point of each log: the offset up to which the log was flushed."""
        return self.checkpoint(names.RECOVERY_POINT_CHECKPOINT)

    @cached_property
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """For each log, the offset up to which it was compacted. Logs that were never compacted are absent."""
        return self.checkpoint(names.CLEANER_CHECKPOINT)

    @cached_property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """The log start offset of each log in which it differs from the first segment's base."""
        return self.checkpoint(names.LOG_START_OFFSET_CHECKPOINT)

    @cached_property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of each log as of the last checkpoint."""
        return self.checkpoint(names.HIGH_WATERMARK_CHECKPOINT)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets in one of the folder's checkpoints. If the checkpoint is damaged, log a notice and return an empty
        dict.
        """
        path = self.path / name
        try:
            return read_offset_checkpoint(path)
        except CorruptCheckpointError as error:
            self.notices.note(path, f"{error}: the checkpoint is treated as empty")
            return {}

    def _is_written_later(self, name: str, than: str) -> bool:
        """Return whether checkpoint `name` is newer than checkpoint `than`, or `than` does not exist."""
        try:
            other = (self.path / than).stat()
        except OSError:
            return True
        try:
            return other.st_size == 0 or (self.path / name).stat().st_mtime_ns >= other.st_mtime_ns
        except OSError:
            return False

    @cached_property
    def _names(self) -> list[str]:
        return self._list()

    def _list(self) -> list[str]:
        try:
            return [entry.name for entry in self.path.iterdir()]
        except FileNotFoundError:
            hint = "; for brokers, give HOST:PORT" if str(self.path) == self.path.name else ""
            raise DataDirNotFoundError(f"no such folder{hint}", path=self.path) from None
        except NotADirectoryError:
            hint = ""
            if names.is_log_file(self.path.name):
                hint = " but a segment's file: the data folder is the one above its folder, and tidelog dump shows a single file"
            raise DataDirNotFoundError(f"not a folder{hint}", path=self.path) from None
        except StorageError:
            raise  # Object storage raises an error of its own that says what is wrong.
        except OSError as error:
            raise StorageError(f"cannot list a folder: {error.strerror}", path=self.path) from error

    @cached_property
    def _partitions(self) -> set[TopicPartition]:
        return set(_partitions_among(self.path, self._names))

    @cached_property
    def _metadata_partitions(self) -> set[TopicPartition]:
        keys = (TopicPartition(METADATA_TOPIC, partition) for partition in range(2))
        return {key for key in keys if self._holds_a_log(names.log_dir_name(*key))}

    def _holds_a_log(self, name: str) -> bool:
        return _holds_a_log(self.path / name)

    def _is_moving(self, name: str, there: list[str]) -> bool:
        """Return whether a partition has a ``-delete``, ``-stray`` or ``-future`` folder. In these folders' names Kafka shortens
        very long topic names.

        An empty folder counts only if a broker is running, because the broker may be about to remove the folder. Otherwise an
        earlier topic with that name has left it behind.
        """
        for other in there:
            if names.is_suffixed_dir(other):
                stem = other.rpartition(".")[0]
                topic, _, partition = stem.rpartition("-")
                cut = len(other) >= MAX_NAME_LENGTH and name.startswith(topic) and name.endswith(f"-{partition}")
                if (stem == name or cut) and (is_locked(self.path) or self._has_files(other)):
                    return True
        return False

    def _has_files(self, name: str) -> bool:
        try:
            return any((self.path / name).iterdir())
        except OSError:
            return False


def _partitions_among(folder: FilePath, listed: Iterable[str]) -> Iterator[TopicPartition]:
    """Yield the partitions among the names in a folder."""
    for name in listed:
        if names.is_suffixed_dir(name):
            continue
        try:
            key = names.parse_topic_partition_name(name)
        except InvalidArgumentError:
            continue
        if key.topic != METADATA_TOPIC and names.log_dir_name(*key) == name and _holds_a_log(folder / name):
            yield key


def _partitions_in(folder: FilePath) -> bool:
    """Return whether a folder holds a partition; False if it cannot be listed."""
    try:
        return any(True for _ in _partitions_among(folder, (entry.name for entry in folder.iterdir())))
    except OSError:
        return False


def _holds_a_log(folder: FilePath) -> bool:
    try:
        return any(file.name == names.PARTITION_METADATA or names.is_log_file(file.name) for file in folder.iterdir())
    except FileNotFoundError:
        # The disk is not mounted, or the folder was removed after it was listed.
        return isinstance(folder, Path) and folder.is_symlink()
    except NotADirectoryError:
        return False
    except OSError:
        return True  # Reading the partition reports why.
