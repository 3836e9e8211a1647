"""The migration of a data folder to format v2: the tasks, the copied files, and the final step.

::

    begin    OUT.unfinished is created, with a folder for each partition; files other than segments are copied     one process
    —        segments are migrated: `segment_migration.migrate_segment`                                    any number
    —        if there were transactions: `index_transactions`,    a partition each                         any number
    finish   the storage engine opens the folder and closes it; OUT.unfinished becomes OUT                 one process

OUT does not exist before the last step: a killed migration leaves a folder whose name ends with ``.unfinished``. `abandon`
removes it.

| in the new folder | comes from |
|---|---|
| segments, time maps | `segment_migration` |
| `.snapshot`, `leader-epoch-checkpoint`, `partition.metadata` | copied: offsets and producers do not change |
| high watermarks, log starts, cleaner offsets | the old checkpoints; an unknown high watermark becomes the log end |
| KRaft's metadata log | copied if the whole folder is migrated, else created; no topic has a `message.format.version` below 2 |
| `meta.properties` | copied |
| recovery points, missing snapshots, clean-shutdown marker | the storage engine |

The engine finds recovery points at the logs' ends and no clean-shutdown marker. It therefore recovers the last segments and the
producers as after a crash, and leaves its usual files.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidelog.check.folder_indexes import RebuildOptions, rebuild_partitions
from tidelog.check.migration.segment_migration import MAX_SEGMENT_BYTES, MigratedSegment, SegmentToMigrate
from tidelog.check.partitions import DEFAULT_INTERVAL_BYTES, PartitionToVerify, partitions_to_verify, select_partitions
from tidelog.clock import Clock, SystemClock
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, sync_directory, write_offset_checkpoint
from tidelog.formats.paths.file_path import local_path
from tidelog.metadata.records import TOPIC_RESOURCE
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.metadata_log import BOOTSTRAP_CHECKPOINT, metadata_dir
from tidelog.storage.folder.data_folder import FIRST_NODE_ID
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.meta_properties import META_PROPERTIES, read_meta_properties
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata import takeover
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.metadata.topic_records import config_records, topic_records

logger = logging.getLogger("tidelog.storage")

UNFINISHED_SUFFIX = ".unfinished"
MESSAGE_FORMAT_VERSION = "message.format.version"

_CARRIED_CHECKPOINTS = (names.HIGH_WATERMARK_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_CHECKPOINT)
_CARRIED_OF_PARTITION = (names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA)
_CARRIED_OF_WHOLE_FOLDER = (*takeover.OLD_FILES, BOOTSTRAP_CHECKPOINT)


@dataclass(frozen=True)
class Migration:
    """A migration in progress."""

    source: Path
    out_dir: Path
    work_dir: Path
    partitions: tuple[TopicPartition, ...]
    intervals: dict[TopicPartition, int]
    """The index.interval.bytes of each partition: the topic's setting, or Kafka's default, as in the storage engine."""
    segments: tuple[SegmentToMigrate, ...]
    """The tasks, the largest first."""


class TransactionsToIndex(NamedTuple):
    """A task for a partition with transactions; it can be pickled."""

    directory: Path
    index_interval_bytes: int


def begin(directory: Path, out_dir: Path, topic: str | None = None, *, max_segment_bytes: int = MAX_SEGMENT_BYTES) -> Migration:
    """Create the unfinished folder with everything except segments, and return the segments to migrate.

    Raises InvalidArgumentError for an `out_dir` that is not empty, lies inside or above `directory`, or has an unfinished
    migration; NotFoundError for a folder or topic that does not exist; CorruptDataError for a damaged checkpoint or topics file;
    StorageError. On an error nothing is left behind.
    """
    log_dir = LogDir(directory)
    partitions = tuple(TopicPartition(*one) for one in select_partitions(log_dir, topic))
    work_dir = _make_work_dir(directory, out_dir)
    try:
        intervals: dict[TopicPartition, int] = {}
        segments: list[SegmentToMigrate] = []
        for key, partition in zip(partitions, partitions_to_verify(log_dir, partitions), strict=True):
            intervals[key] = _plan(key, partition, work_dir, segments, max_segment_bytes)
        _carry_over(directory, work_dir, partitions, whole=topic is None)
    except OSError as error:
        shutil.rmtree(work_dir, ignore_errors=True)
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot copy a file: {error.strerror or error}", path=error.filename or work_dir) from error
    except BaseException:
        shutil.rmtree(work_dir, ignore_errors=True)
        raise
    segments.sort(key=lambda task: -task.size_bytes)
    return Migration(directory, out_dir, work_dir, partitions, intervals, tuple(segments))


def abandon(migration: Migration) -> None:
    """Remove the unfinished folder."""
    shutil.rmtree(migration.work_dir, ignore_errors=True)


def transactions_to_index(migration: Migration, done: Iterable[MigratedSegment]) -> list[TransactionsToIndex]:
    """Return a task for each partition with control batches, because such a partition may have aborted transactions."""
    keys = {TopicPartition(one.topic, one.partition) for one in done if one.has_control_batches}
    return [TransactionsToIndex(migration.work_dir / names.log_dir_name(*key), migration.intervals[key]) for key in sorted(keys)]


def index_transactions(task: TransactionsToIndex) -> None:
    """Write the transaction indexes of a partition's new segments. Raises CorruptDataError, SegmentChangedError, StorageError."""
    from tidelog.reader.log import Log

    partition = PartitionToVerify(lambda: Log.open(task.directory))
    for _ in rebuild_partitions([partition], RebuildOptions(interval_bytes=task.index_interval_bytes, time_maps=False)):
        pass


def finish(migration: Migration, done: Sequence[MigratedSegment], clock: Clock, *, threads: int = 1) -> None:
    """Open the folder with the storage engine, check that every log ends at the old log's end, and rename the folder.

    Raises StorageError or CorruptDataError and leaves the folder unfinished.
    """
    ends = dict.fromkeys(migration.partitions, 0)
    for segment in done:
        key = TopicPartition(segment.topic, segment.partition)
        ends[key] = max(ends[key], segment.next_offset)
    work_dir = migration.work_dir
    write_offset_checkpoint(work_dir / names.RECOVERY_POINT_CHECKPOINT, {key: end for key, end in ends.items() if end})
    # A partition without checkpoints comes from a backup: all its records may be read. The engine would assume the log start.
    high_watermarks = read_offset_checkpoint(work_dir / names.HIGH_WATERMARK_CHECKPOINT)
    write_offset_checkpoint(work_dir / names.HIGH_WATERMARK_CHECKPOINT, {**ends, **high_watermarks})
    with LogManager(work_dir, clock, properties={"num.recovery.threads.per.data.dir": str(threads)}) as manager:
        for key, reason in manager.offline_partitions().items():
            raise StorageError(f"the new partition {names.log_dir_name(*key)} cannot be opened: {reason}", path=work_dir)
        for key, end in ends.items():
            log = manager.log(*key)
            if log.log_end_offset != max(end, log.log_start_offset):
                raise StorageError(
                    "the new log does not end at the offset where the old log ends",
                    path=log.directory,
                    found=log.log_end_offset,
                    expected=end,
                )
        if not manager.shutdown():
            raise StorageError("the new folder could not be closed cleanly", path=work_dir)
    try:
        work_dir.rename(migration.out_dir)  # Replaces an empty folder of that name.
        sync_directory(migration.out_dir.parent)
    except OSError as error:
        raise StorageError(
            f"cannot rename the unfinished folder to its final name: {error.strerror}", path=migration.out_dir
        ) from error


def check_out_dir(directory: Path, out_dir: Path) -> Path:
    """Return the path of the unfinished folder. Creates nothing. Raises InvalidArgumentError and StorageError like `begin`."""
    source, target = directory.resolve(), out_dir.resolve()
    if target.is_relative_to(source) or source.is_relative_to(target):
        raise InvalidArgumentError(
            "the new folder is inside the old folder, or the old folder is inside the new one", path=out_dir
        )
    work_dir = target.with_name(f"{target.name}{UNFINISHED_SUFFIX}")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidArgumentError("the new folder already exists and is not empty", path=out_dir)
        if work_dir.exists():
            raise _unfinished(work_dir)
    except OSError as error:
        raise _not_created(work_dir, error) from error
    return work_dir


def _make_work_dir(directory: Path, out_dir: Path) -> Path:
    work_dir = check_out_dir(directory, out_dir)
    try:
        work_dir.mkdir(parents=True)
    except FileExistsError:
        raise _unfinished(work_dir) from None
    except OSError as error:
        raise _not_created(work_dir, error) from error
    return work_dir


def _unfinished(work_dir: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        "an earlier migration did not finish, or another one is running: if none is running, remove this folder", path=work_dir
    )


def _not_created(work_dir: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot create the new folder: {error.strerror}", path=work_dir)


def _plan(
    key: TopicPartition,
    partition: PartitionToVerify,
    work_dir: Path,
    segments: list[SegmentToMigrate],
    max_segment_bytes: int,
) -> int:
    """Create a partition's new folder without segments. Add its segments to `segments`, and return its index.interval.bytes."""
    target = work_dir / names.log_dir_name(*key)
    target.mkdir()
    interval_bytes = partition.likely_interval_bytes or DEFAULT_INTERVAL_BYTES
    with partition.open() as log:
        segments += [
            SegmentToMigrate(
                *key,
                local_path(segment.log_path),
                segment.next_base_offset,
                segment.size_bytes,
                target,
                interval_bytes,
                max_segment_bytes,
            )
            for segment in log.segments
        ]
        snapshots = [names.file_name(offset, names.SNAPSHOT_SUFFIX) for offset in log.snapshots]
        for name in (*_CARRIED_OF_PARTITION, *snapshots):
            _copy(local_path(log.directory) / name, target / name)
    return interval_bytes


def _carry_over(directory: Path, work_dir: Path, partitions: Sequence[TopicPartition], *, whole: bool) -> None:
    """Copy the files that exist once per folder."""
    for name in _CARRIED_CHECKPOINTS:
        if (directory / name).exists():
            offsets = read_offset_checkpoint(directory / name)
            kept = {key: offset for key, offset in offsets.items() if key in set(partitions)}
            write_offset_checkpoint(work_dir / name, kept)
    _copy(directory / META_PROPERTIES, work_dir / META_PROPERTIES)
    if whole:
        for name in _CARRIED_OF_WHOLE_FOLDER:
            _copy(directory / name, work_dir / name)
        metadata = metadata_dir(directory)
        if metadata.is_dir():
            shutil.copytree(metadata, work_dir / metadata.name)
    _carry_topics(directory, work_dir, None if whole else {key.topic for key in partitions})


def _carry_topics(directory: Path, work_dir: Path, only: set[str] | None) -> None:
    """Write the topics to the new folder's metadata, without old message formats. `only` names the topics; None means all."""
    topics = {name: topic for name, topic in read_topics(directory).items() if only is None or name in only}
    old = {name for name, topic in topics.items() if LogConfig.from_properties(topic.properties).magic < 2}
    if not topics or (only is None and not old):
        return
    owner = read_meta_properties(directory)
    node_id, directory_id = (FIRST_NODE_ID, None) if owner is None else (owner.node_id, owner.directory_uuid)
    store = MetadataStore.open(work_dir, node_id, directory_id, SystemClock())
    if only is None and takeover.is_old(work_dir) and not takeover.take_over(store):
        takeover.set_aside(work_dir)
    for name, topic in topics.items():
        properties = dict(topic.properties)
        if name in old:
            version = properties.pop(MESSAGE_FORMAT_VERSION)
            logger.warning(
                "%s: removed %s=%s from the configuration of topic %s", work_dir, MESSAGE_FORMAT_VERSION, version, name
            )
        if name in store.image.topics:
            store.append(config_records(TOPIC_RESOURCE, name, topic.properties, properties))
        else:
            store.append(topic_records(topic.with_properties(properties), node_id, store.directory_id))
    store.flush()


def _copy(source: Path, target: Path) -> None:
    """Copy a file and its timestamps, if the file exists."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        return
