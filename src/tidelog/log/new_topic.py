"""A topic on its way into a data folder: all of it appears, or nothing of it.

Each partition is written into a staging folder ``<topic>-<partition>.<uuid>-delete``: a name that readers skip and that
Kafka itself removes at its next start. The first half of the uuid is fixed, so that Tidelog knows its own ones. Then::

    1  every file of every partition is written and synced          a crash leaves staging folders only
    2  the staging folders are renamed to <topic>-<partition>       a crash leaves a part of the topic
    3  the data folder is synced, checkpoints get the new offsets

Whoever takes the folder's lock next cleans up: staging folders of an import that died in step 1 are removed; where a
published partition carries the same topic id, the import died in step 2, all its data was synced, and the rest is
published. So no lock, no cleaning, no writing: two writers never see each other's staging.

Checkpoints say what is true after a clean stop: high watermark and recovery point are the log end (spec §7). They are
replaced by rename, with everybody else's lines kept.
"""

from __future__ import annotations

import logging
import re
import resource
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, StorageError, TidelogError, TopicExistsError
from tidelog.log import names
from tidelog.log.checkpoints import read_offset_checkpoint, sync_directory, write_offset_checkpoint
from tidelog.log.dir_lock import DirLock
from tidelog.log.names import TopicPartition
from tidelog.log.partition_metadata import read_topic_id
from tidelog.log.partition_writer import PartitionWriter

logger = logging.getLogger("tidelog.log")

MAX_TOPIC_LENGTH = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_RAFT_TOPIC = "__cluster_metadata"

_OUR_MARK = b"tidelog".hex()
_STAGING = re.compile(rf".+-[0-9]+\.{_OUR_MARK}[0-9a-f]{{{32 - len(_OUR_MARK)}}}{names.DELETE_DIR_SUFFIX}")
_OWNER = "meta.properties"
_SPARE_FILES = 64


class NewTopic:
    """Writes a topic of `partitions` partitions into the data folder `directory`, which is created where it is missing.

    A context manager: `writers[p]` takes partition p's batches, `commit` publishes; leaving without it leaves nothing behind.
    Entering raises InvalidArgumentError for an illegal name or number, TopicExistsError, and StorageError, also where a
    broker or another import holds the folder.
    """

    def __init__(self, directory: Path, topic: str, partitions: int, config: LogConfig, clock: Clock) -> None:
        check_topic_name(topic)
        if not 1 <= partitions <= 2**31 - 1:
            raise InvalidArgumentError("a topic has at least one partition", found=partitions)
        self.directory = directory
        self.topic = topic
        self.topic_id = _random_topic_id()
        self.writers: list[PartitionWriter] = []
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._lock: DirLock | None = None
        self._created: list[Path] = []
        self._staging: list[Path] = []
        self._published: list[tuple[Path, Path]] = []
        self._committed = False

    def __enter__(self) -> NewTopic:
        _allow_open_files(self._partitions + _SPARE_FILES)
        if any(self.directory.glob(f"*{names.LOG_SUFFIX}")):
            raise InvalidArgumentError("this is a partition's folder, not a data folder", path=self.directory)
        try:
            self._create_directory()
            self._lock = DirLock(self.directory).__enter__()
            finish_interrupted(self.directory)
            if topic_exists(self.directory, self.topic):
                raise TopicExistsError(f"topic {self.topic!r} is there already", path=self.directory)
            for partition in range(self._partitions):
                self._stage(partition)
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._committed:
            self._unlock()
        else:
            self._abandon()

    def commit(self) -> None:
        """Finish and sync every partition, then publish them all. Raises StorageError; nothing is left behind then."""
        for writer in self.writers:
            writer.close()
        final = [self.directory / names.log_dir_name(self.topic, partition) for partition in range(self._partitions)]
        for staged, target in zip(self._staging, final, strict=True):
            self._published.append((staged, target))
            _rename(staged, target)
        end_offsets = {TopicPartition(self.topic, p): writer.log_end_offset for p, writer in enumerate(self.writers)}
        _checkpoint(self.directory, end_offsets)
        self._committed = True
        owner = self.directory / _OWNER
        if owner.exists():
            logger.warning(
                "%s: an Apache Kafka owns this folder; it sets aside topics that its own metadata does not know", owner
            )

    def _create_directory(self) -> None:
        self._created = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot create the data folder: {error.strerror}", path=self.directory) from error

    def _stage(self, partition: int) -> None:
        tag = _OUR_MARK + uuid.uuid4().hex[: 32 - len(_OUR_MARK)]
        tail = f"-{partition}.{tag}{names.DELETE_DIR_SUFFIX}"
        folder = self.directory / (self.topic[: names.MAX_NAME_LENGTH - len(tail)] + tail)
        try:
            folder.mkdir()
        except OSError as error:
            raise StorageError(f"cannot create a folder: {error.strerror}", path=folder) from error
        self._staging.append(folder)
        self.writers.append(PartitionWriter(folder, self._config, self._clock, topic_id=self.topic_id))

    def _abandon(self) -> None:
        """Remove whatever this object has made; what fails here hides no error that led here."""
        for writer in self.writers:
            with suppress(StorageError):
                writer.abandon()
        for staged, target in reversed(self._published):
            if not staged.exists():
                with suppress(OSError):
                    target.rename(staged)
        for folder in self._staging:
            shutil.rmtree(folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.remove_if_new()
        self._unlock()
        with suppress(OSError):
            for path in self._created:
                path.rmdir()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)


def check_topic_name(topic: str) -> None:
    """Raise InvalidArgumentError unless Kafka takes this name."""
    if not 1 <= len(topic) <= MAX_TOPIC_LENGTH:
        raise InvalidArgumentError("illegal topic name", found=f"{len(topic)} characters", expected=f"1 to {MAX_TOPIC_LENGTH}")
    if topic in (".", "..") or not _LEGAL_TOPIC.fullmatch(topic):
        raise InvalidArgumentError("illegal topic name", found=repr(topic), expected="letters, digits, '.', '_' and '-'")
    if topic == _RAFT_TOPIC:
        raise InvalidArgumentError("illegal topic name: Kafka keeps it for its own metadata", found=repr(topic))


def topic_exists(directory: Path, topic: str) -> bool:
    """Whether `directory` holds a partition of `topic`."""
    return any(key.topic == topic for key in _partition_folders(directory))


def finish_interrupted(directory: Path) -> None:
    """Clean up after imports that were killed; only under the folder's lock."""
    leftovers = [entry for entry in directory.iterdir() if _STAGING.fullmatch(entry.name)]
    if not leftovers:
        return
    published: dict[uuid.UUID, dict[TopicPartition, Path]] = {}
    for key, folder in _partition_folders(directory).items():
        topic_id = _topic_id(folder)
        if topic_id is not None:
            published.setdefault(topic_id, {})[key] = folder
    complete: dict[TopicPartition, Path] = {}
    for folder in leftovers:
        topic_id = _topic_id(folder)
        siblings = published.get(topic_id) if topic_id is not None else None
        if siblings is None:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        # The staging name may have cut the topic short; a sibling has it whole.
        key = TopicPartition(next(iter(siblings)).topic, names.parse_topic_partition_name(folder.name).partition)
        target = directory / names.log_dir_name(*key)
        _rename(folder, target)
        complete.update(siblings)
        complete[key] = target
    if complete:
        _checkpoint(directory, {key: _log_end_offset(folder) for key, folder in complete.items()})


def _checkpoint(directory: Path, end_offsets: dict[TopicPartition, int]) -> None:
    """Make the renames durable and tell the new partitions' offsets."""
    try:
        sync_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot sync the data folder: {error.strerror}", path=directory) from error
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        path = directory / name
        write_offset_checkpoint(path, {**_offsets(path), **end_offsets})
    path = directory / names.LOG_START_OFFSET_CHECKPOINT
    before = _offsets(path)
    after = {key: offset for key, offset in before.items() if key not in end_offsets}
    if after != before or not path.exists():
        write_offset_checkpoint(path, after)


def _offsets(path: Path) -> dict[TopicPartition, int]:
    """Read a checkpoint; a damaged one counts as empty, as it does for Kafka."""
    try:
        return read_offset_checkpoint(path)
    except CorruptCheckpointError:
        return {}


def _partition_folders(directory: Path) -> dict[TopicPartition, Path]:
    found = {}
    for entry in directory.iterdir():
        if names.is_suffixed_dir(entry.name):
            continue
        try:
            found[names.parse_topic_partition_name(entry.name)] = entry
        except InvalidArgumentError:
            continue
    return found


def _topic_id(folder: Path) -> uuid.UUID | None:
    try:
        return read_topic_id(folder / names.PARTITION_METADATA)
    except TidelogError:
        return None


def _log_end_offset(folder: Path) -> int:
    """A finished partition has a snapshot at its log end, unless it is empty."""
    return max((int(path.stem) for path in folder.glob(f"*{names.SNAPSHOT_SUFFIX}")), default=0)


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise StorageError(f"cannot rename a folder: {error.strerror}", path=target) from error


def _random_topic_id() -> uuid.UUID:
    """Return a random id whose text does not begin with a dash, which command lines would take for an option."""
    while True:
        topic_id = uuid.uuid4()
        if topic_id.bytes[0] >> 2 != 0b111110:
            return topic_id


def _allow_open_files(count: int) -> None:
    """Raise the process's limit of open files where that is allowed; each partition has its segment open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except (ValueError, OSError):
        raise InvalidArgumentError(
            f"{count - _SPARE_FILES} partitions need {count} open files", found=f"a limit of {hard}", expected="more (ulimit -n)"
        ) from None
