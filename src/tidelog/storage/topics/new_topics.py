"""Adds topics with their records to a data folder, atomically: all topics of one commit, or none.

Each partition is written into a staging folder ``<topic>-<partition>.<uuid>-delete``: readers skip such a name, and Kafka removes
it at its next start. The first half of the UUID is fixed, so that Tidelog recognizes its own staging folders. The steps are::

    1  every file of every partition is written and synced          a crash leaves staging folders only
    2  checkpoints get the new offsets                              the same
    3  the topics are registered in the folder's metadata log       from here on they exist
    4  the staging folders are renamed to <topic>-<partition>       a crash leaves part of them
    5  the data folder is synced

Steps 2, 3 and 5 take the same time for one topic as for a hundred, so small topics are best committed together. Step 1 waits for
the disk several times for each partition: `StagedTopic.finish` does it for one partition, on any thread, and `commit` for those
that are left, several at a time.

The next owner of the folder's lock cleans up. If an import was killed in step 1 or 2, its staging folders are removed. If the
metadata or a published partition has the same topic id, all data has been synced, and the remaining staging folders are
published. All this happens only under the lock, so two writers never see each other's staging folders.

A folder with a ``meta.properties`` and without a metadata log belongs to an Apache Kafka broker that keeps its metadata
elsewhere. In such a folder the topic is not registered, and a warning says what Kafka will do with an unknown topic.

The checkpoints are as after a clean shutdown: the high watermark and the recovery point are the log end offset (spec §7). The
files are replaced by rename, and keep the lines of other partitions.
"""

from __future__ import annotations

import logging
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.clock import Clock
from tidelog.config import CREATE_TIME, LogConfig, unaliased
from tidelog.errors import InvalidArgumentError, LogOfflineError, StorageError, TidelogError, TopicExistsError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file, sync_directory, write_offset_checkpoint
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.metadata.records import RemoveTopicRecord
from tidelog.model import MAX_TOPIC_NAME_LENGTH, METADATA_TOPIC, TopicPartition, is_topic_name
from tidelog.ordered_map import ordered_map
from tidelog.reader.metadata_log import METADATA_DIR, metadata_dir
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.meta_properties import META_PROPERTIES, read_meta_properties
from tidelog.storage.loading.loader import load
from tidelog.storage.metadata import takeover
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.metadata.topic_records import topic_records
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.topics.topic import Topic

logger = logging.getLogger("tidelog.storage")

_CHECKPOINTS = (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT)

LEADER_EPOCH = 0
"""The leader epoch of a new topic's records, with which each log begins."""

FINISHED_AT_ONCE = 8
"""The number of partitions that `commit` finishes at a time. A disk syncs many files together in a fraction of the time."""

_OUR_MARK = b"tidelog".hex()
_STAGING = re.compile(rf".+-[0-9]+\.{_OUR_MARK}[0-9a-f]{{{32 - len(_OUR_MARK)}}}{names.DELETE_DIR_SUFFIX}")


class StagedTopic:
    """A topic that is being written: append partition p's batches to `logs[p]`.

    `properties` are the topic's, as text under Kafka's names. With `topic_id` the topic is a copy: its logs accept the batches of
    a different log as a follower does, and later leader epochs continue from their last one. Without it, the batches have the
    leader epoch `LEADER_EPOCH`. Raises InvalidArgumentError for an illegal name, number or property.
    """

    def __init__(self, name: str, partitions: int, properties: Mapping[str, str], *, topic_id: uuid.UUID | None = None) -> None:
        check_topic_name(name)
        if not 1 <= partitions <= 2**31 - 1:
            raise InvalidArgumentError("a topic must have at least one partition", found=partitions)
        texts = {name: str(value) for name, value in unaliased(properties).items()}
        self.topic = Topic(name, topic_id or data_folder.new_topic_id(), partitions, texts)
        self.is_copy = topic_id is not None
        self.config = replace(LogConfig.from_properties(texts), message_timestamp_type=CREATE_TIME)
        self.logs: list[PartitionLog] = []
        self.folders: list[Path] = []
        self._finished: set[int] = set()

    def stage(self, directory: Path, clock: Clock, scheduler: Scheduler) -> None:
        """Create the staging folders below `directory`, and open their logs. Raises StorageError."""
        for partition in range(self.topic.partitions):
            tag = _OUR_MARK + uuid.uuid4().hex[: 32 - len(_OUR_MARK)]
            tail = f"-{partition}.{tag}{names.DELETE_DIR_SUFFIX}"
            folder = directory / (self.topic.name[: names.MAX_NAME_LENGTH - len(tail)] + tail)
            try:
                folder.mkdir()
            except OSError as error:
                raise StorageError(f"cannot create a folder: {error.strerror}", path=folder) from error
            self.folders.append(folder)
            # By its name this folder is being deleted, so nothing in it is loaded. It is empty anyway.
            log = load(folder, self.config, clock, scheduler, had_clean_shutdown=True, topic_id=self.topic.topic_id)
            self.logs.append(log)
            if not self.is_copy:
                log.maybe_assign_epoch_start_offset(LEADER_EPOCH, 0)
            log.segments.give_descriptors_back()  # A topic may have more partitions than a process may have files open.

    def finish(self, partition: int) -> None:
        """Close a partition's log cleanly, and sync its files and folder. Nothing may be appended to it afterwards.

        Two partitions may be finished at the same time, on two threads. Raises StorageError, LogOfflineError.
        """
        if partition in self._finished:
            return
        # A broker looks only for unfinished topics, so it starts without this import.
        from tidelog.reader.time_map_file import write_time_maps

        log = self.logs[partition]
        if log.local.segments.active.size_bytes:
            log.local.segments.active.on_become_inactive()  # Trimmed after the flush, its files would be synced twice.
        log.flush(force_active=True)
        log.close()
        write_time_maps(sorted(log.directory.glob(f"*{names.LOG_SUFFIX}")))
        log.local.sync_directory()
        self._finished.add(partition)

    def by_key(self) -> dict[TopicPartition, PartitionLog]:
        """Return the logs by partition."""
        return {TopicPartition(self.topic.name, partition): log for partition, log in enumerate(self.logs)}


class NewTopics:
    """Writes topics into the data folder `directory`, which is created if missing, and publishes them together.

    A context manager. `add` topics, append to their logs, then call `commit`. Leaving the context without `commit` leaves nothing
    behind. Records keep their timestamps even if a topic has message.timestamp.type=LogAppendTime, which applies only to later
    appends.

    Entering raises StorageError, also if a broker or another import holds the folder, and CorruptCheckpointError for a damaged
    topics file.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._scheduler = Scheduler(clock)
        self._topics: list[StagedTopic] = []
        self._lock: DirLock | None = None
        self._created: list[Path] = []
        self._published: list[tuple[Path, Path]] = []
        self._store: MetadataStore | None = None
        self._before: dict[Path, bytes | None] = {}
        self._is_committed = False

    def __enter__(self) -> Self:
        if any(self.directory.glob(f"*{names.LOG_SUFFIX}")):
            raise InvalidArgumentError("the folder is a partition's folder, not a data folder", path=self.directory)
        try:
            self._created = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
            data_folder.create(self.directory)
            self._lock = DirLock(self.directory).__enter__()
            finish_interrupted(self.directory)
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_committed:
            self._unlock()
            return
        self._abandon()
        if isinstance(error, LogOfflineError) and isinstance(error.__cause__, StorageError):
            raise error.__cause__  # No partition can be offline here.

    def add(self, *topics: StagedTopic) -> None:
        """Begin to write topics. Raises TopicExistsError, CorruptCheckpointError, StorageError."""
        self._refuse_existing(topics)
        for topic in topics:
            self._topics.append(topic)
            topic.stage(self.directory, self._clock, self._scheduler)

    def commit(self) -> None:
        """Finish and sync every partition, then publish all topics. Raises StorageError; nothing is left behind then."""
        # Wait for the flush of rolled segments. If a flush fails, the log is offline, which is reported below.
        self._scheduler.shutdown()
        left = [(topic, partition) for topic in self._topics for partition in range(topic.topic.partitions)]
        for _ in ordered_map(lambda one: one[0].finish(one[1]), left, min(FINISHED_AT_ONCE, len(left))):
            pass
        is_kafkas = not ((self.directory / METADATA_DIR).exists() or takeover.is_old(self.directory)) and data_folder.is_claimed(
            self.directory
        )
        logs = {key: log for topic in self._topics for key, log in topic.by_key().items()}
        inside = {key: log for key, log in logs.items() if log.log_start_offset > log.local.segments.base_offsets[0]}
        self._before = {path: _bytes_of(path) for path in (self.directory / name for name in _CHECKPOINTS)}
        _checkpoint(
            self.directory,
            {key: log.log_end_offset for key, log in logs.items()},
            {key: log.log_start_offset for key, log in inside.items()},
        )
        if not is_kafkas:
            self._register()
        for key, log in logs.items():
            target = self.directory / names.log_dir_name(*key)
            self._published.append((log.directory, target))
            _rename(log.directory, target)
        _sync(self.directory)
        self._is_committed = True
        if is_kafkas:
            logger.warning(
                "%s: an Apache Kafka broker owns this folder; Kafka will set aside topics that are not in its metadata",
                self.directory / META_PROPERTIES,
            )

    # --- inside

    def _register(self) -> None:
        owner = read_meta_properties(self.directory)
        node_id = data_folder.FIRST_NODE_ID if owner is None else owner.node_id
        self._store = MetadataStore.open(self.directory, node_id, None if owner is None else owner.directory_uuid, self._clock)
        if takeover.is_old(self.directory) and not takeover.take_over(self._store):
            takeover.set_aside(self.directory)
        records = []
        for topic in self._topics:
            epochs = [latest for log in topic.logs if (latest := log.leader_epochs.latest_epoch) is not None]
            leader_epoch = max(epochs, default=LEADER_EPOCH)
            records += topic_records(topic.topic, node_id, self._store.directory_id, leader_epoch=leader_epoch)
        self._store.commit(records)

    def _refuse_existing(self, topics: Sequence[StagedTopic]) -> None:
        there = {key.topic for key in data_folder.list_contents(self.directory).partitions} | read_topics(self.directory).keys()
        for name, partitions in ((one.topic.name, one.topic.partitions) for one in topics):
            # Any file or folder with the name of a partition would prevent the renaming later.
            own = (self.directory / names.log_dir_name(name, partition) for partition in range(partitions))
            if name in there or any(path.exists() for path in own):
                raise TopicExistsError(f"topic {name!r} already exists", path=self.directory)

    def _abandon(self) -> None:
        """Remove everything that this object has created. Errors during the removal do not hide the original error."""
        for topic in self._topics:
            for log in topic.logs:
                log.close_handlers()
        for staged, target in reversed(self._published):
            if not staged.exists():
                with suppress(OSError):
                    target.rename(staged)
        if self._unregister():
            for topic in self._topics:
                for folder in topic.folders:
                    shutil.rmtree(folder, ignore_errors=True)
            self._take_back_checkpoints()
        if self._lock is not None:
            self._lock.remove_if_new()
        self._unlock()
        with suppress(OSError):
            for path in self._created:
                path.rmdir()

    def _take_back_checkpoints(self) -> None:
        for path, data in self._before.items():
            with suppress(OSError):
                if data is None:
                    path.unlink(missing_ok=True)
                else:
                    replace_file(path, data)

    def _unregister(self) -> bool:
        """Undo the registration in the metadata. Return False if the metadata cannot be written: the next start then
        finishes the topics.
        """
        store, self._store = self._store, None
        known = set() if store is None else {one.topic.topic_id for one in self._topics} & store.image.topics_by_id.keys()
        if store is None or not known:
            self._remove_new_metadata(store)
            return True
        try:
            store.commit([RemoveTopicRecord(topic_id) for topic_id in known])
        except OSError as error:
            logger.error("%s: %s", self.directory, error)
            return False
        self._remove_new_metadata(store)
        return True

    def _remove_new_metadata(self, store: MetadataStore | None) -> None:
        """Remove the metadata log if it did not exist before."""
        if store is not None and store.is_new and not store.image.topics:
            shutil.rmtree(metadata_dir(self.directory), ignore_errors=True)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)


def check_topic_name(topic: str) -> None:
    """Raise InvalidArgumentError unless Kafka accepts this name."""
    if not 1 <= len(topic) <= MAX_TOPIC_NAME_LENGTH:
        raise InvalidArgumentError(
            "illegal topic name", found=f"{len(topic)} characters", expected=f"1 to {MAX_TOPIC_NAME_LENGTH}"
        )
    if not is_topic_name(topic):
        raise InvalidArgumentError("illegal topic name", found=repr(topic), expected="letters, digits, '.', '_' and '-'")
    if topic == METADATA_TOPIC:
        raise InvalidArgumentError("illegal topic name: Kafka reserves it for its own metadata", found=repr(topic))


def finish_interrupted(directory: Path) -> None:
    """Clean up after killed imports. Call it only under the folder's lock. Raises StorageError, CorruptCheckpointError."""
    contents = data_folder.list_contents(directory)
    leftovers = [folder for folder in contents.going if _STAGING.fullmatch(folder.name)]
    if not leftovers:
        return
    committed = {topic.topic_id: topic.name for topic in read_topics(directory).values()}
    published: dict[uuid.UUID, dict[TopicPartition, Path]] = {}
    for key, folder in contents.partitions.items():
        topic_id = _topic_id(folder)
        if topic_id is not None:
            committed[topic_id] = key.topic
            published.setdefault(topic_id, {})[key] = folder
    complete: dict[TopicPartition, Path] = {}
    before = DirCheckpoints(directory)
    for folder in leftovers:
        topic_id = _topic_id(folder)
        if topic_id is None or topic_id not in committed:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        # The staging name may have a shortened topic name.
        key = TopicPartition(committed[topic_id], names.parse_topic_partition_name(folder.name).partition)
        target = directory / names.log_dir_name(*key)
        _rename(folder, target)
        complete.update(published.get(topic_id, {}))
        complete[key] = target
    if not complete:
        return
    _sync(directory)
    starts = {key: offset for key, offset in before.log_start_offsets.items() if key in complete}
    _checkpoint(directory, {key: _log_end_offset(folder) for key, folder in complete.items()}, starts)


def _sync(directory: Path) -> None:
    try:
        sync_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot sync the data folder: {error.strerror}", path=directory) from error


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read a checkpoint: {error.strerror}", path=path) from error


def _checkpoint(directory: Path, end_offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
    """Add the new partitions' offsets to the checkpoints. `starts` has the log start offsets that are not base offsets of a
    segment.
    """
    before = DirCheckpoints(directory)
    write_offset_checkpoint(directory / names.RECOVERY_POINT_CHECKPOINT, {**before.recovery_points, **end_offsets})
    write_offset_checkpoint(directory / names.HIGH_WATERMARK_CHECKPOINT, {**before.high_watermarks, **end_offsets})
    others = {key: offset for key, offset in before.log_start_offsets.items() if key not in end_offsets}
    write_offset_checkpoint(directory / names.LOG_START_OFFSET_CHECKPOINT, {**others, **starts})


def _topic_id(folder: Path) -> uuid.UUID | None:
    try:
        return read_topic_id(folder / names.PARTITION_METADATA)
    except TidelogError:
        return None


def _log_end_offset(folder: Path) -> int:
    """Return the log end offset of a finished partition, at which it has a producer snapshot unless it is empty."""
    return max((int(path.stem) for path in folder.glob(f"*{names.SNAPSHOT_SUFFIX}")), default=0)


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise StorageError(f"cannot rename a folder: {error.strerror}", path=target) from error
