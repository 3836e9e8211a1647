"""A data folder with all its partitions: who owns it, when it starts and stops, what is done in the background.

| in the folder | | owned by |
|---|---|---|
| ``.lock`` | held while a manager runs; Kafka locks the same file | here |
| ``meta.properties`` | node, cluster and folder ids; another node's or cluster's folder is refused | `meta_properties` |
| ``__cluster_metadata-0/`` | topics with ids, settings, leader epochs; producer ids | `metadata_store`, `topic_lifecycle` |
| ``.kafka_cleanshutdown`` | removed at the start, written at a clean end | `clean_shutdown` |
| ``*-checkpoint`` | recovery points, log start offsets, high watermarks | `dir_checkpoints` |
| ``cleaner-offset-checkpoint`` | where compaction goes on | `cleaner_manager` |
| ``<topic>-<p>`` | a partition | `partitions` |
| ``<topic>-<p>.<uuid>-delete`` | one that is being removed | `partitions` |

What is done in the background is in `background_work`: retention, compaction, flushes, checkpoints, time maps. Nothing of it
happens by itself: the owner calls `tick`.

A partition of which the metadata knows nothing (a backup, a folder of a Kafka whose metadata lies elsewhere) is served, but
neither retention nor compaction touches it until someone calls `adopt_topic`; one notice says so. A partition that cannot be
loaded, or that meets an I/O error later, is offline with a reason; the others go on, and there is no clean-shutdown mark at the
end.

All of it belongs to one thread; only loading may use several (`partitions`). See docs/storage.md for how it is used.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from tidelog.clock import Clock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.model import TopicPartition
from tidelog.storage.background_work import BackgroundWork
from tidelog.storage.broker_settings import BrokerSettings, configured_by_log
from tidelog.storage.compaction.log_cleaner import LogCleaner
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.clean_shutdown import NO_BROKER_EPOCH, take_clean_shutdown, write_clean_shutdown
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.folder.dir_lock import DirLock
from tidelog.storage.folder.meta_properties import MetaProperties
from tidelog.storage.folder.staged_write import finish_interrupted_writes
from tidelog.storage.folder.write_journal import is_pending
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata import takeover
from tidelog.storage.metadata.leading import claiming_records
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.offline_partitions import OfflinePartitions
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import LoadProgress, Partitions, Progress
from tidelog.storage.producers.producer_ids import ProducerIds
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.storage.segment.descriptors import close_on_shortage_by, forget_closer
from tidelog.storage.steps import Steps, run_steps
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_lifecycle import TopicLifecycle
from tidelog.storage.topics.topic_statistics import TopicStatistics, topic_statistics
from tidelog.storage.topics.topic_steps import TopicSteps
from tidelog.storage.topics.topic_table import KEEP_EVERYTHING, warn_of_unknown

__all__ = ["KEEP_EVERYTHING", "LoadProgress", "LogManager", "Progress"]

logger = logging.getLogger("tidelog.storage")

T = TypeVar("T")

SNAPSHOT_INTERVAL_MS = 60_000
"""Between two looks whether the metadata log has grown so much that a snapshot is due."""


class _Started(NamedTuple):
    """What there is between a start and its end."""

    owner: MetaProperties
    store: MetadataStore
    partitions: Partitions
    lifecycle: TopicLifecycle
    work: BackgroundWork
    producer_ids: ProducerIds
    settings: BrokerSettings


class LogManager:
    """Looks after `directory`, which is created where it is missing. A context manager: entering starts, leaving stops cleanly.

    `properties` are a broker's (`manager_config`). `progress` is called after each partition, `recovery_progress` while one is
    recovered, on the thread that does it. A `scheduler` that is handed in is shut down at the end as well.
    """

    def __init__(
        self,
        directory: str | Path,
        clock: Clock,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        scheduler: Scheduler | None = None,
        progress: Progress | None = None,
        recovery_progress: Callable[[RecoveryProgress], None] | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.clock = clock
        self._configured = ManagerConfig.from_properties(properties or {})
        self.scheduler = scheduler or Scheduler(clock)
        self.had_clean_shutdown = False
        self._progress = progress
        self._recovery_progress = recovery_progress
        self._jitter = jitter
        self._lock: DirLock | None = None
        self._started: _Started | None = None

    def __enter__(self) -> LogManager:
        self.startup()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    # --- start and stop

    def startup(self) -> None:
        """Lock the folder, load every partition, begin with the background work.

        Raises StorageError where someone else holds the folder or it cannot be read, InvalidArgumentError where it belongs to
        another node or cluster, or its metadata is a quorum's, CorruptDataError for a damaged ``meta.properties`` or
        metadata log: nothing was changed then, besides. Interrupted, it leaves the folder as clean as it found it.
        """
        data_folder.create(self.directory)
        self._lock = DirLock(self.directory).__enter__()
        try:
            self._start()
        except BaseException:
            self._unlock()
            raise

    def _start(self) -> None:
        data_folder.raise_open_files_limit()
        is_new = not data_folder.is_claimed(self.directory)
        owner = data_folder.claim(self.directory, self._configured)
        contents = data_folder.list_contents(self.directory)
        if contents.going or is_pending(self.directory):
            finish_interrupted_writes(self.directory, self.clock)
            contents = data_folder.list_contents(self.directory)
        is_kafkas = not (is_new or takeover.is_old(self.directory))
        store = MetadataStore.open(self.directory, owner.node_id, owner.directory_uuid, self.clock, is_kafkas=is_kafkas)
        self._start_with(store, owner, contents, is_new=is_new)

    def _start_with(
        self, store: MetadataStore, owner: MetaProperties, contents: data_folder.FolderContents, *, is_new: bool
    ) -> None:
        deleting: set[str] = set()
        is_old = takeover.is_old(self.directory)
        if is_old:
            deleting = takeover.take_over(store)
        if is_new:
            store.commit(claiming_records(store))
            store.begin()
        config = configured_by_log(self._configured, store)
        checkpoints = DirCheckpoints(self.directory)
        self.had_clean_shutdown = take_clean_shutdown(self.directory)
        partitions = Partitions(
            self.directory,
            self.clock,
            self.scheduler,
            checkpoints,
            had_clean_shutdown=self.had_clean_shutdown,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            recovery_progress=self._recovery_progress,
            jitter=self._jitter,
        )
        lifecycle = TopicLifecycle(self.directory, config, partitions, store, deleting)
        work = BackgroundWork(self.directory, self.clock, self.scheduler, config, partitions, lifecycle)
        partitions.events = work
        try:
            keys = lifecycle.finish_deletions(contents)
            warn_of_unknown(self.directory, {key.topic for key in keys if not lifecycle.is_known(key.topic)})
            folders = [lifecycle.folder_of(key, contents.partitions[key]) for key in keys]
            partitions.load_all(folders, config.recovery_threads, self._progress)
            lifecycle.create_missing()
            if is_old and not any(map(lifecycle.is_deleting, deleting)):
                takeover.set_aside(self.directory)
        except BaseException:
            self._abandon(partitions)
            raise
        work.schedule()
        self.scheduler.schedule(
            "metadata-snapshot",
            lambda: Rest(store.take_snapshot) if store.is_snapshot_due else None,
            delay_ms=SNAPSHOT_INTERVAL_MS,
            period_ms=SNAPSHOT_INTERVAL_MS,
        )
        close_on_shortage_by(partitions.give_descriptors_back)
        settings = BrokerSettings(self._configured, store, lifecycle, partitions, work)
        self._started = _Started(owner, store, partitions, lifecycle, work, ProducerIds(store), settings)

    def _abandon(self, partitions: Partitions) -> None:
        """Give up a start. Where the last end was a clean one, this is one as well: no recovery must follow."""
        if not self.had_clean_shutdown:
            partitions.close_handlers()
        elif partitions.close_all():
            with suppress(StorageError):
                write_clean_shutdown(self.directory)

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, progress: Callable[[], object] = lambda: None) -> bool:
        """Flush and close every log, write the checkpoints, and the clean-shutdown mark if nothing failed; whether that is so.

        What fails is logged and does not keep the rest, but for a disk that does not answer. `progress` is called from time to
        time, as long as the disk does. Idempotent.
        """
        started, self._started = self._started, None
        if started is None:
            return False
        forget_closer(started.partitions.give_descriptors_back)
        try:
            started.work.stop()
            is_clean = False
            try:
                is_clean = started.partitions.close_all(progress)
                if started.store.is_snapshot_due:  # A broker that lives for moments never comes to the periodic look.
                    with suppress(StorageError):
                        started.store.take_snapshot()
                started.work.finish()
                if is_clean:
                    write_clean_shutdown(self.directory, broker_epoch)
            except StorageError as error:
                is_clean = False
                logger.error("%s: the next start recovers: %s", self.directory, error)
            return is_clean
        finally:
            self._unlock()

    def abort(self) -> None:
        """Give the folder up as a process does that is killed: nothing is written any more, the next start recovers."""
        started, self._started = self._started, None
        if started is not None:
            forget_closer(started.partitions.give_descriptors_back)
            started.partitions.close_handlers()
            self._unlock()

    def tick(self) -> int:
        """Do what is due; return how many tasks ran."""
        return self.scheduler.tick()

    # --- asking

    @property
    def config(self) -> ManagerConfig:
        """How the folder is looked after: as configured, once started with the dynamic settings in its metadata log."""
        return self._configured if self._started is None else self._started.settings.config

    @property
    def settings(self) -> BrokerSettings:
        """The broker's settings that change while it runs."""
        return self._running.settings

    @property
    def owner(self) -> MetaProperties:
        """Node, cluster and folder ids."""
        return self._running.owner

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that were loaded, by partition."""
        return self._running.partitions.logs

    @property
    def changed_topics(self) -> set[str]:
        """Topics that came, went or changed, or of which a partition did. For one who looks at them, and then clears the set."""
        return self._running.partitions.changed

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""
        return self._running.lifecycle.topics()

    def topic(self, name: str) -> Topic | None:
        """Return a topic that has a configuration, None if there is none of that name."""
        return self._running.lifecycle.find(name)

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """Return a topic's partitions, offline ones included, in order."""
        return self._running.partitions.keys_of(name)

    def partitions(self) -> list[TopicPartition]:
        """Return every partition that is there, offline ones included, in order."""
        return self._running.partitions.all_keys()

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition's log. Raises UnknownTopicOrPartitionError; LogOfflineError, with the reason, if it was not loaded.

        A log that met an I/O error later is returned: it refuses what would write, and what was acknowledged is read.
        """
        return self._running.partitions.get(TopicPartition(topic, partition))

    def offline_partitions(self) -> dict[TopicPartition, str]:
        """Return the partitions that nothing can be written to, and why."""
        return self._running.partitions.offline()

    def unfinished_deletions(self) -> list[str]:
        """Return the topics whose deletion the disk has refused to finish: `delete_topic` goes on with one."""
        return self._running.lifecycle.unfinished()

    def is_configuration_known(self, topic: str) -> bool:
        """Whether retention and compaction may touch the topic."""
        return self._running.lifecycle.is_known(topic)

    def statistics(self) -> dict[str, TopicStatistics]:
        """Return for each topic how much there is, what is offline, and how its segments came to their ends."""
        return self._run(self.statistics_in_steps())

    def statistics_in_steps(self) -> Steps[dict[str, TopicStatistics]]:
        """The same in steps: see `topic_statistics`."""
        partitions = self._running.partitions
        return topic_statistics(partitions.logs, partitions.failed)

    @property
    def producer_ids(self) -> ProducerIds:
        """Ids for idempotent and transactional producers, none of which was handed out before."""
        return self._running.producer_ids

    def next_producer_id(self) -> int:
        """Return one of them. Raises StorageError."""
        return self.producer_ids.next_id()

    # --- changing: see `topic_lifecycle`

    def create_topic(self, name: str, partitions: int, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Create a topic; the folders are there when this returns.

        Raises TopicExistsError, InvalidArgumentError for a name, number or property that Kafka would refuse, StorageError;
        nothing is left behind then.
        """
        return self._run(self.steps.creation(name, partitions, properties))

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Let a topic have more partitions, `partitions` in all.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError unless that is more than it has, StorageError: partitions that
        the topic has then, and whose folders could not be made, are offline.
        """
        return self._run(self.steps.enlargement(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete a topic: it is gone for readers at once, its folders after a delay.

        Raises UnknownTopicOrPartitionError; StorageError where a folder cannot be renamed, to be tried again.
        """
        self._run(self.steps.deletion(name))

    def alter_config(self, name: str, properties: Mapping[str, PropertyValue]) -> Topic:
        """Give a topic these properties instead of those it had.

        Raises UnknownTopicOrPartitionError, also for one without a configuration, InvalidArgumentError, StorageError.
        """
        return self._run(self.steps.alteration(name, properties))

    def adopt_topic(self, name: str, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Give a configuration to a topic that was found without one: from now on retention and compaction apply to it.

        Raises InvalidArgumentError where there is no such topic, or its partitions carry different ids, StorageError.
        """
        return self._run(self.steps.adoption(name, properties))

    @property
    def steps(self) -> TopicSteps:
        """The same in steps, for an owner that does other things in between."""
        running = self._running
        return TopicSteps(running.lifecycle, running.partitions, running.work)

    @property
    def metadata(self) -> MetadataStore:
        """The folder's metadata log."""
        return self._running.store

    def _run(self, steps: Steps[T]) -> T:
        return run_steps(steps, self._running.store)

    def bring_online(self, topic: str, partition: int) -> PartitionLog:
        """Load an offline partition again, once its disk is well, and recover it; return its log, which replaces the old one.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError for a topic that is being deleted, and what loading raises:
        the partition stays offline then.
        """
        running = self._running
        key = TopicPartition(topic, partition)
        if key not in running.partitions.failed:
            running.partitions.get(key)
        if running.lifecycle.is_deleting(topic):
            raise InvalidArgumentError(f"topic {topic!r} is being deleted", path=self.directory)
        running.work.stop_cleaning([key])
        return running.partitions.reload(running.lifecycle.folder_of(key))

    @property
    def offline(self) -> OfflinePartitions:
        """What brings partitions back by itself, and how often it had to."""
        return self._running.work.offline

    # --- background work by hand: see `background_work`

    def delete_old_segments(self) -> int:
        """Let retention delete what is due, but in compacted topics; return how many segments."""
        return self._running.work.delete_old_segments()

    def flush_dirty_logs(self) -> None:
        """Force those logs to the disk whose flush.ms is over."""
        self._running.work.flush_dirty_logs()

    def checkpoint_recovery_points(self) -> None:
        """Write down up to where each log is on the disk. Raises StorageError."""
        self._running.partitions.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Write down the log starts that lie inside a first segment. Raises StorageError."""
        self._running.partitions.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks. Raises StorageError."""
        self._running.partitions.checkpoint_high_watermarks()

    @property
    def cleaner(self) -> LogCleaner | None:
        """Compaction, to be looked at or done by hand; None with log.cleaner.enable=false."""
        return self._running.work.cleaner

    # --- inside

    @property
    def _running(self) -> _Started:
        if self._started is None:
            raise InvalidArgumentError("the log manager is not running", path=self.directory)
        return self._started

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)
