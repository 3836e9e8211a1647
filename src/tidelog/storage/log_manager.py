"""A data folder with all its partitions: who owns it, which topics it has, what is done in the background (spec §6.1, §6.4, §7).

======================================  =====================================================================
``.lock``                               held while a manager runs; Kafka locks the same file
``meta.properties``                     node, cluster and folder ids; another node's or cluster's folder is refused
``tidelog-topics.json``                 topics: ids, partition counts, configurations (`topics_file`)
``.kafka_cleanshutdown``                removed at the start, written at a clean end (`clean_shutdown`)
``*-checkpoint``                        recovery points, log start offsets, high watermarks (`dir_checkpoints`)
``<topic>-<p>.<uuid>-delete``           a partition that is being removed
======================================  =====================================================================

A partition of which ``tidelog-topics.json`` knows nothing (a backup, a folder from Kafka) is served, but neither retention nor
compaction touches it until someone calls `adopt_topic`; one notice says so. A partition that cannot be loaded, or that meets
an I/O error later, is offline with a reason; the others go on.

Nothing happens by itself: the owner calls `tick`. All of it belongs to one thread; only loading uses several, one for each
partition at a time.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config import LogConfig, PropertyValue
from tidelog.errors import (
    InvalidArgumentError,
    LogOfflineError,
    StorageError,
    TidelogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.log import names
from tidelog.log.checkpoints import sync_directory
from tidelog.log.dir_lock import DirLock
from tidelog.log.names import TopicPartition
from tidelog.log.new_topic import check_topic_name, finish_interrupted
from tidelog.log.partition_metadata import format_topic_id, write_topic_id
from tidelog.storage.clean_shutdown import NO_BROKER_EPOCH, take_clean_shutdown, write_clean_shutdown
from tidelog.storage.data_folder import claim, new_topic_id, partition_directories, raise_open_files_limit
from tidelog.storage.dir_checkpoints import DirCheckpoints
from tidelog.storage.loader import load
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.meta_properties import MetaProperties
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.topics_file import Topic, read_topics, write_topics

logger = logging.getLogger("tidelog.storage")

KEEP_EVERYTHING: dict[str, PropertyValue] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
"""The configuration of a topic that nobody has told us one for."""

DIRECTORY_DELETE_DELAY_MS = 60_000


class LoadProgress(NamedTuple):
    """How far a start has come."""

    partitions_done: int
    partitions: int
    loaded: TopicPartition
    is_offline: bool


Progress = Callable[[LoadProgress], None]


class LogManager:
    """Looks after `directory`, which is created where it is missing. A context manager: entering starts, leaving stops cleanly.

    `properties` are a broker's (`manager_config`), `progress` is called after each partition. Entering raises StorageError
    where someone else holds the folder, InvalidArgumentError where it belongs to another node or cluster, CorruptCheckpointError
    for a damaged ``meta.properties`` or ``tidelog-topics.json``.
    """

    def __init__(
        self,
        directory: str | Path,
        clock: Clock,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        scheduler: Scheduler | None = None,
        progress: Progress | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.clock = clock
        self.config = ManagerConfig.from_properties(properties or {})
        self.scheduler = scheduler or Scheduler(clock)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, str] = {}
        self.had_clean_shutdown = False
        self._topics: dict[str, Topic] = {}
        self._progress = progress
        self._jitter = jitter or random.Random()
        self._lock: DirLock | None = None
        self._checkpoints: DirCheckpoints | None = None
        self._owner: MetaProperties | None = None

    def __enter__(self) -> LogManager:
        self.startup()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    # --- start and stop

    def startup(self) -> None:
        """Lock the folder, load every partition, begin with the background work."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot create the data folder: {error.strerror}", path=self.directory) from error
        self._lock = DirLock(self.directory).__enter__()
        try:
            raise_open_files_limit()
            self._owner = claim(self.directory, self.config)
            self._topics = read_topics(self.directory)
            finish_interrupted(self.directory)
            self.had_clean_shutdown = take_clean_shutdown(self.directory)
            self._checkpoints = DirCheckpoints(self.directory)
            self._finish_deletions()
            self._load_all(partition_directories(self.directory))
            self._create_missing()
            self._schedule_background_work()
        except BaseException:
            self._unlock()
            raise

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flush and close every log, write the checkpoints, and the clean-shutdown mark if nothing failed. Twice is no error."""
        if self._lock is None:
            return
        try:
            self.scheduler.shutdown()
            failed = bool(self.offline)
            closed: list[PartitionLog] = []
            for key, log in self.logs.items():
                try:
                    log.flush(force_active=True)
                    log.close()
                    closed.append(log)
                except TidelogError as error:
                    failed = True
                    logger.error("%s: not closed cleanly: %s", names.log_dir_name(*key), error)
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
            self.checkpoint_high_watermarks()
            if not failed:
                write_clean_shutdown(self.directory, broker_epoch)
        finally:
            self._unlock()

    def tick(self) -> int:
        """Do what is due; return how many tasks ran."""
        return self.scheduler.tick()

    # --- topics and logs

    @property
    def owner(self) -> MetaProperties:
        """Node, cluster and folder ids."""
        assert self._owner is not None, "not started"
        return self._owner

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""
        return {name: topic for name, topic in self._topics.items() if not topic.is_deleting}

    def partitions(self) -> list[TopicPartition]:
        """Return every partition that is there, offline ones included, in order."""
        return sorted({*self.logs, *self.offline})

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition's log. Raises UnknownTopicOrPartitionError, LogOfflineError with the reason."""
        key = TopicPartition(topic, partition)
        if key in self.offline:
            raise LogOfflineError(
                f"the partition is offline: {self.offline[key]}", path=self.directory / names.log_dir_name(*key)
            )
        if key not in self.logs:
            raise UnknownTopicOrPartitionError(f"no partition {partition} of topic {topic!r}", path=self.directory)
        return self.logs[key]

    def is_configuration_known(self, topic: str) -> bool:
        """Whether retention and compaction may touch the topic."""
        return topic in self._topics

    def create_topic(self, name: str, partitions: int, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Create a topic; the folders are there when this returns.

        Raises TopicExistsError, InvalidArgumentError for a name, number or property that Kafka would refuse, StorageError;
        nothing is left behind then.
        """
        check_topic_name(name)
        if not 1 <= partitions <= 2**31 - 1:
            raise InvalidArgumentError("a topic has at least one partition", found=partitions)
        if name in self._topics or any(key.topic == name for key in self.partitions()):
            raise TopicExistsError(f"topic {name!r} is there already", path=self.directory)
        self._refuse_collision(name)
        texts = {key: str(value) for key, value in (properties or {}).items()}
        config = self.config.topic_config(texts)
        topic = Topic(name, new_topic_id(), partitions, texts)
        self._write_topics({**self._topics, name: topic})
        try:
            for partition in range(partitions):
                self._create_partition(topic, partition, config)
            self._sync()
        except BaseException:
            self._undo_create(topic)
            raise
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic: it is gone for readers at once, its folders after a delay. Raises UnknownTopicOrPartitionError."""
        keys = [key for key in self.partitions() if key.topic == name]
        known = self._topics.get(name)
        if not keys and known is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}", path=self.directory)
        if known is not None:
            self._write_topics({**self._topics, name: Topic(**{**vars(known), "is_deleting": True})})
        for key in keys:
            self._delete_partition(key)
        self._sync()
        self._write_topics({other: topic for other, topic in self._topics.items() if other != name})
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    def alter_config(self, name: str, properties: Mapping[str, PropertyValue]) -> Topic:
        """Give a topic these properties instead of those it had. Raises InvalidArgumentError, UnknownTopicOrPartitionError."""
        known = self._topics.get(name)
        if known is None or known.is_deleting:
            raise UnknownTopicOrPartitionError(f"no topic {name!r} with a configuration", path=self.directory)
        texts = {key: str(value) for key, value in properties.items()}
        config = self.config.topic_config(texts)
        self._write_topics({**self._topics, name: known.with_properties(texts)})
        self._configure(name, config)
        return self._topics[name]

    def adopt_topic(self, name: str, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Give a configuration to a topic that was found without one: from now on retention and compaction apply to it."""
        keys = [key for key in self.partitions() if key.topic == name]
        if not keys or name in self._topics:
            raise InvalidArgumentError("no topic without a configuration", found=repr(name), path=self.directory)
        texts = {key: str(value) for key, value in (properties or {}).items()}
        config = self.config.topic_config(texts)
        ids = {log.topic_id for key, log in self.logs.items() if key.topic == name and log.topic_id is not None}
        if len(ids) > 1:
            raise InvalidArgumentError("partitions of different topics of one name", found=", ".join(map(format_topic_id, ids)))
        topic = Topic(name, next(iter(ids), None) or new_topic_id(), max(key.partition for key in keys) + 1, texts)
        self._write_topics({**self._topics, name: topic})
        for key in keys:
            if key in self.logs and self.logs[key].topic_id is None:
                self.logs[key].assign_topic_id(topic.topic_id)
        self._configure(name, config)
        self._create_missing()
        return topic

    # --- background work

    def delete_old_segments(self) -> int:
        """Let retention delete what is due in every log with a configuration; return how many segments."""
        deleted = 0
        for key, log in self._online():
            if self.is_configuration_known(key.topic):
                with self._offline_on_error(key):
                    deleted += log.delete_old_segments()
        return deleted

    def flush_dirty_logs(self) -> None:
        """Force those logs to the disk whose flush.ms is over."""
        now_ms = self.clock.now_ms()
        for key, log in self._online():
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                with self._offline_on_error(key):
                    log.flush()

    def checkpoint_recovery_points(self) -> None:
        """Write down up to where each log is on the disk."""
        before = self._dir_checkpoints.recovery_points
        self._dir_checkpoints.write_recovery_points(
            {**self._kept(before), **{key: log.recovery_point for key, log in self.logs.items()}}
        )

    def checkpoint_log_start_offsets(self) -> None:
        """Write down the log starts that lie inside a first segment."""
        before = self._dir_checkpoints.log_start_offsets
        inside = {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset > log.segments.base_offsets[0]
        }
        self._dir_checkpoints.write_log_start_offsets({**self._kept(before), **inside})

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks."""
        before = self._dir_checkpoints.high_watermarks
        self._dir_checkpoints.write_high_watermarks(
            {**self._kept(before), **{key: log.high_watermark for key, log in self.logs.items()}}
        )

    # --- inside

    @property
    def _dir_checkpoints(self) -> DirCheckpoints:
        assert self._checkpoints is not None, "not started"
        return self._checkpoints

    def _kept(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: offset for key, offset in before.items() if key in self.offline}

    def _online(self) -> list[tuple[TopicPartition, PartitionLog]]:
        return [(key, log) for key, log in self.logs.items() if not log.is_offline]

    def _finish_deletions(self) -> None:
        """Remove what was being removed when the last run ended; a topic half renamed is renamed whole."""
        for name in [name for name, topic in self._topics.items() if topic.is_deleting]:
            for key, directory in partition_directories(self.directory).items():
                if key.topic == name:
                    directory.rename(directory.with_name(names.log_delete_dir_name(*key)))
            self._write_topics({other: topic for other, topic in self._topics.items() if other != name})
        for entry in self.directory.iterdir():
            if entry.name.endswith(names.DELETE_DIR_SUFFIX) and entry.is_dir():
                self._remove_later(entry)

    def _remove_later(self, directory: Path) -> None:
        self.scheduler.schedule(
            "delete-directory", lambda: shutil.rmtree(directory, ignore_errors=True), delay_ms=DIRECTORY_DELETE_DELAY_MS
        )

    def _load_all(self, directories: Mapping[TopicPartition, Path]) -> None:
        unknown = sorted({key.topic for key in directories} - self._topics.keys())
        if unknown:
            logger.warning(
                "%s: nothing is known of the configuration of %s: retention and compaction are off for %s",
                self.directory,
                ", ".join(unknown),
                "it" if len(unknown) == 1 else "them",
            )
        keys = sorted(directories)
        with ThreadPoolExecutor(self.config.recovery_threads, thread_name_prefix="log-recovery") as pool:
            for key, (log, reason) in zip(keys, pool.map(lambda key: self._try_load(key, directories[key]), keys), strict=True):
                if log is not None:
                    self.logs[key] = log
                else:
                    self.offline[key] = reason
                if self._progress is not None:
                    self._progress(LoadProgress(len(self.logs) + len(self.offline), len(keys), key, log is None))

    def _try_load(self, key: TopicPartition, directory: Path) -> tuple[PartitionLog | None, str]:
        topic = self._topics.get(key.topic)
        try:
            log = self._load(key, directory, self._topic_config(key.topic), topic)
        except (TidelogError, OSError) as error:
            logger.error("%s: offline: %s", names.log_dir_name(*key), error)
            return None, str(error)
        high_watermark = self._dir_checkpoints.high_watermarks.get(key)
        if high_watermark is not None:
            log.update_high_watermark(high_watermark)
        return log, ""

    def _load(self, key: TopicPartition, directory: Path, config: LogConfig, topic: Topic | None) -> PartitionLog:
        return load(
            directory,
            config,
            self.clock,
            self.scheduler,
            recovery_point=self._dir_checkpoints.recovery_points.get(key, 0),
            log_start_offset=self._dir_checkpoints.log_start_offsets.get(key, 0),
            had_clean_shutdown=self.had_clean_shutdown,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            topic_id=None if topic is None else topic.topic_id,
        )

    def _topic_config(self, name: str) -> LogConfig:
        topic = self._topics.get(name)
        return LogConfig.from_properties(KEEP_EVERYTHING) if topic is None else self.config.topic_config(topic.properties)

    def _create_missing(self) -> None:
        """Create the partitions of known topics that are not there: a crash came between the file and the folders."""
        there = {*self.logs, *self.offline}
        for topic in self.topics().values():
            for partition in range(topic.partitions):
                if TopicPartition(topic.name, partition) not in there:
                    logger.warning("%s-%d is missing and begins anew, empty", topic.name, partition)
                    self._create_partition(topic, partition, self._topic_config(topic.name))

    def _create_partition(self, topic: Topic, partition: int, config: LogConfig) -> None:
        key = TopicPartition(topic.name, partition)
        directory = self.directory / names.log_dir_name(*key)
        try:
            directory.mkdir()
        except OSError as error:
            raise StorageError(f"cannot create a partition's folder: {error.strerror}", path=directory) from error
        write_topic_id(directory / names.PARTITION_METADATA, topic.topic_id)
        self.logs[key] = self._load(key, directory, config, topic)

    def _undo_create(self, topic: Topic) -> None:
        for partition in range(topic.partitions):
            key = TopicPartition(topic.name, partition)
            log = self.logs.pop(key, None)
            if log is not None:
                with suppress(TidelogError):
                    log.close()
            shutil.rmtree(self.directory / names.log_dir_name(*key), ignore_errors=True)
            if log is None:
                break
        self._write_topics({name: other for name, other in self._topics.items() if name != topic.name})

    def _delete_partition(self, key: TopicPartition) -> None:
        log = self.logs.pop(key, None)
        self.offline.pop(key, None)
        directory = self.directory / names.log_dir_name(*key)
        target = directory.with_name(names.log_delete_dir_name(*key))
        try:
            if log is None:
                directory.rename(target)
            else:
                log.rename_dir(target)
                log.close_handlers()
        except OSError as error:
            raise StorageError(f"cannot rename a partition's folder: {error.strerror}", path=directory) from error
        self._remove_later(target)

    def _refuse_collision(self, name: str) -> None:
        """Kafka refuses a topic whose name differs from another's in dots and underscores only: metrics would mix them up."""
        for other in {key.topic for key in self.partitions()} | self._topics.keys():
            if other.replace(".", "_") == name.replace(".", "_"):
                raise InvalidArgumentError(f"topic {name!r} collides with another", found=repr(other), path=self.directory)

    def _configure(self, name: str, config: LogConfig) -> None:
        for key, log in self.logs.items():
            if key.topic == name:
                log.update_config(config)

    def _write_topics(self, topics: dict[str, Topic]) -> None:
        write_topics(self.directory, topics)
        self._topics = topics

    def _sync(self) -> None:
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise StorageError(f"cannot sync the data folder: {error.strerror}", path=self.directory) from error

    def _schedule_background_work(self) -> None:
        config = self.config
        for name, task, period_ms in (
            ("log-retention", self.delete_old_segments, config.retention_check_interval_ms),
            ("log-flusher", self.flush_dirty_logs, config.flush_scheduler_interval_ms),
            ("recovery-point-checkpoint", self.checkpoint_recovery_points, config.recovery_point_checkpoint_interval_ms),
            ("log-start-offset-checkpoint", self.checkpoint_log_start_offsets, config.log_start_offset_checkpoint_interval_ms),
        ):
            self.scheduler.schedule(name, task, delay_ms=config.initial_task_delay_ms, period_ms=period_ms)
        period_ms = config.high_watermark_checkpoint_interval_ms
        self.scheduler.schedule(
            "high-watermark-checkpoint", self.checkpoint_high_watermarks, delay_ms=period_ms, period_ms=period_ms
        )

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)

    def _offline_on_error(self, key: TopicPartition) -> suppress:
        # The log has taken itself offline and said why; background work goes on with the others.
        return suppress(StorageError)
