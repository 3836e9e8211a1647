"""A data folder with all its partitions: ownership, startup, shutdown, background work.

| in the folder | content | owned by |
|---|---|---|
| ``.lock`` | held while a manager runs; Kafka locks the same file | here |
| ``meta.properties`` | node, cluster and folder ids; another node's or cluster's folder is refused | `meta_properties` |
| ``__cluster_metadata-0/`` | topics with ids, settings, leader epochs; producer ids | `metadata_store`, `topic_lifecycle` |
| ``.kafka_cleanshutdown`` | removed at startup, written at a clean shutdown | `clean_shutdown` |
| ``*-checkpoint`` | recovery points, log start offsets, high watermarks | `dir_checkpoints` |
| ``cleaner-offset-checkpoint`` | where compaction continues | `cleaner_manager` |
| ``<topic>-<p>`` | a partition | `partitions` |
| ``<topic>-<p>.<uuid>-delete`` | one that is being removed | `partitions` |

`background_work` has the background work: retention, compaction, flushes, checkpoints, time maps. It runs only when the owner
calls `tick`.

A partition that the metadata lacks (a backup, a folder of a Kafka whose metadata is elsewhere) is served, but retention and
compaction do not touch it until `adopt_topic` is called; a notice says so. A partition that cannot be loaded, or has an I/O error
later, is offline with a reason. Other partitions are not affected, but no clean-shutdown marker is written at the end.

Call it from one thread. It starts threads only to recover logs and to close them (`partitions`). docs/storage.md describes its
use.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from tidelog.clock import Clock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.folder_path import folder_path
from tidelog.formats.dir_lock import DirLock
from tidelog.metadata.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.storage.broker_settings import BrokerSettings
from tidelog.storage.compaction.log_cleaner import LogCleaner
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.clean_shutdown import NO_BROKER_EPOCH
from tidelog.storage.folder.meta_properties import MetaProperties
from tidelog.storage.folder.staged_write import finish_interrupted_writes
from tidelog.storage.folder.write_journal import is_pending
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata import takeover
from tidelog.storage.metadata.cluster_metadata import MetadataSource
from tidelog.storage.metadata.leading import claiming_records
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.offline_partitions import OfflinePartitions
from tidelog.storage.opened_folder import OpenedFolder
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import LoadProgress, Progress
from tidelog.storage.producers.producer_ids import ProducerIds
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.storage.steps import Steps, run_steps
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_configs import KEEP_EVERYTHING
from tidelog.storage.topics.topic_lifecycle import TopicLifecycle
from tidelog.storage.topics.topic_statistics import TopicStatistics, topic_statistics
from tidelog.storage.topics.topic_steps import TopicSteps

__all__ = ["KEEP_EVERYTHING", "LoadProgress", "LogManager", "Progress"]

logger = logging.getLogger("tidelog.storage")

T = TypeVar("T")

SNAPSHOT_INTERVAL_MS = 60_000
"""How often to check whether a snapshot of the metadata log is due."""


class _Own(NamedTuple):
    """The parts that only a folder with its own metadata log has."""

    store: MetadataStore
    lifecycle: TopicLifecycle
    producer_ids: ProducerIds


class LogManager:
    """Manages `directory`, which is created if missing. A context manager: entering starts, leaving shuts down cleanly.

    `properties` are a broker's (`manager_config`). `progress` is called after each partition, `recovery_progress` during a
    recovery, on the recovering thread. A `scheduler` that is passed in is shut down at the end.
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
        self.directory = folder_path(directory)
        self.clock = clock
        self._configured = ManagerConfig.from_properties(properties or {})
        self.scheduler = scheduler or Scheduler(clock)
        self.had_clean_shutdown = False
        self._progress = progress
        self._recovery_progress = recovery_progress
        self._jitter = jitter
        self._lock: DirLock | None = None
        self._started: OpenedFolder | None = None
        self._own: _Own | None = None

    def __enter__(self) -> LogManager:
        self.startup()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    # --- startup and shutdown

    def startup(self) -> None:
        """Lock the folder, load every partition, begin the background work.

        Raises StorageError if another process holds the folder or it cannot be read, InvalidArgumentError if it belongs to
        another node or cluster or its metadata is a quorum's, CorruptDataError for a damaged ``meta.properties`` or metadata log;
        nothing has changed then. An interrupted startup leaves the folder as clean as before.
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
        opened = self._opened(owner, store)
        lifecycle = TopicLifecycle(self.directory, opened.config, opened.partitions, store, deleting)

        def loaded() -> None:
            lifecycle.create_missing()
            if is_old and not any(map(lifecycle.is_deleting, deleting)):
                takeover.set_aside(self.directory)

        opened.load(lifecycle, contents, self._progress, loaded)
        self.scheduler.schedule(
            "metadata-snapshot",
            lambda: Rest(store.take_snapshot) if store.is_snapshot_due else None,
            delay_ms=SNAPSHOT_INTERVAL_MS,
            period_ms=SNAPSHOT_INTERVAL_MS,
        )
        self._own = _Own(store, lifecycle, ProducerIds(store))
        self._started = opened

    def _opened(self, owner: MetaProperties, source: MetadataSource) -> OpenedFolder:
        assert self._lock is not None
        opened = OpenedFolder(
            self.directory,
            self.clock,
            self.scheduler,
            owner,
            source,
            self._configured,
            self._lock,
            recovery_progress=self._recovery_progress,
            jitter=self._jitter,
        )
        self.had_clean_shutdown = opened.had_clean_shutdown
        return opened

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, progress: Callable[[], object] = lambda: None) -> bool:
        """Flush and close every log, and write the checkpoints. If nothing failed, write the clean-shutdown marker and return
        True.

        A failure is logged and does not stop the rest, except a disk that does not respond. `progress` is called from time to
        time, while the disk responds. Idempotent.
        """
        started, self._started = self._started, None
        own, self._own = self._own, None

        def closed() -> None:
            if own is not None and own.store.is_snapshot_due:
                # A short-lived broker never reaches the periodic check.
                with suppress(StorageError):
                    own.store.take_snapshot()

        try:
            return started is not None and started.close(broker_epoch, progress, closed)
        finally:
            self._unlock()

    def abort(self) -> None:
        """Abandon the folder as a killed process does: nothing more is written, and the next start recovers."""
        started, self._started, self._own = self._started, None, None
        if started is not None:
            started.abort()
        self._unlock()

    def tick(self) -> int:
        """Run the tasks that are due; return how many ran."""
        return self.scheduler.tick()

    def locked(self) -> AbstractContextManager[None]:
        """Return a context in which the folder stays locked, even if a shutdown gives up waiting. Threads that write enter it."""
        return nullcontext() if self._lock is None else self._lock.shared()

    # --- asking

    @property
    def config(self) -> ManagerConfig:
        """The folder's configuration, after startup with the dynamic settings of its metadata log."""
        return self._configured if self._started is None else self._started.settings.config

    @property
    def settings(self) -> BrokerSettings:
        """The broker's dynamic settings."""
        return self._running.settings

    @property
    def owner(self) -> MetaProperties:
        """Node, cluster and folder ids."""
        return self._running.owner

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The loaded logs, by partition."""
        return self._running.partitions.logs

    @property
    def changed_topics(self) -> set[str]:
        """The topics that have changed, or have a partition that has changed (see `Partitions`). The reader clears the set."""
        return self._running.partitions.changed

    def topics(self) -> dict[str, Topic]:
        """Return the topics that have a configuration, by name."""
        return self._running.topics.topics()

    def topic(self, name: str) -> Topic | None:
        """Return a topic that has a configuration, None if there is none of that name."""
        return self._running.topics.find(name)

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """Return a topic's partitions, offline ones included, in order."""
        return self._running.partitions.keys_of(name)

    def partitions(self) -> list[TopicPartition]:
        """Return every partition that exists, offline ones included, in order."""
        return self._running.partitions.all_keys()

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition's log. Raises UnknownTopicOrPartitionError; LogOfflineError, with the reason, if it was not loaded.

        A log with a later I/O error is returned: it refuses writes, but acknowledged records can be read.
        """
        return self._running.partitions.get(TopicPartition(topic, partition))

    def offline_partitions(self) -> dict[TopicPartition, str]:
        """Return the partitions that cannot be written, and why."""
        return self._running.partitions.offline()

    def unfinished_deletions(self) -> list[str]:
        """Return the topics whose deletion has failed on disk. Call `delete_topic` again to continue it."""
        return self._running.topics.unfinished()

    def is_configuration_known(self, topic: str) -> bool:
        """Whether the topic's configuration is known. If not, retention and compaction leave the topic alone."""
        return self._running.topics.is_known(topic)

    def statistics(self) -> dict[str, TopicStatistics]:
        """Return for each topic its size, its offline partitions, and how its segments were rolled."""
        return self._run(self.statistics_in_steps())

    def statistics_in_steps(self) -> Steps[dict[str, TopicStatistics]]:
        """Return what `statistics` returns, in steps: see `topic_statistics`."""
        partitions, cleaner = self._running.partitions, self._running.work.cleaner
        uncleanable = () if cleaner is None else cleaner.manager.uncleanable_partitions
        return topic_statistics(partitions.logs, partitions.failed, uncleanable, self.clock.now_ms())

    @property
    def producer_ids(self) -> ProducerIds:
        """Ids for idempotent and transactional producers, each used only once."""
        return self._owned.producer_ids

    def next_producer_id(self) -> int:
        """Return a producer id. Raises StorageError."""
        return self.producer_ids.next_id()

    # --- changes: see `topic_lifecycle`

    def create_topic(self, name: str, partitions: int, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Create a topic; its folders exist when this returns.

        Raises TopicExistsError, InvalidArgumentError for a name, number or property that Kafka would refuse, StorageError;
        nothing is left behind then.
        """
        return self._run(self.steps.creation(name, partitions, properties))

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Increase a topic's partitions to `partitions`.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError unless the topic has fewer partitions now, StorageError: new
        partitions whose folders could not be created are then offline.
        """
        return self._run(self.steps.enlargement(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete a topic: readers no longer see it, and its folders are removed after a delay.

        Raises UnknownTopicOrPartitionError; StorageError if a folder cannot be renamed, after which this may be retried.
        """
        self._run(self.steps.deletion(name))

    def alter_config(self, name: str, properties: Mapping[str, PropertyValue]) -> Topic:
        """Replace a topic's properties.

        Raises UnknownTopicOrPartitionError, also for a topic without a configuration, InvalidArgumentError, StorageError.
        """
        return self._run(self.steps.alteration(name, properties))

    def adopt_topic(self, name: str, properties: Mapping[str, PropertyValue] | None = None) -> Topic:
        """Give a configuration to a topic that was found without one: from now on retention and compaction apply to it.

        Raises InvalidArgumentError if there is no such topic or its partitions have different ids, StorageError.
        """
        return self._run(self.steps.adoption(name, properties))

    def refresh_topic(self, name: str) -> None:
        """Take over a topic from the metadata, after its records were appended without `steps`."""
        self._owned.lifecycle.table.refresh(name)

    @property
    def steps(self) -> TopicSteps:
        """The changes of topics in steps, for an owner that does other work in between."""
        running = self._running
        return TopicSteps(self._owned.lifecycle, running.partitions, running.work)

    @property
    def metadata(self) -> MetadataStore:
        """The folder's metadata log. Raises InvalidArgumentError for a cluster member, whose metadata is the controllers'."""
        return self._owned.store

    @property
    def image(self) -> MetadataImage:
        """The current metadata image: the folder's own, or its cluster's."""
        return self._running.source.image

    def _run(self, steps: Steps[T]) -> T:
        return run_steps(steps, None if self._own is None else self._own.store)

    def bring_online(self, topic: str, partition: int) -> PartitionLog:
        """Load an offline partition again, once its disk works, and recover it; return its log, which replaces the old one.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError for a topic that is being deleted, and what loading raises:
        the partition stays offline then.
        """
        running = self._running
        key = TopicPartition(topic, partition)
        if key not in running.partitions.failed:
            running.partitions.get(key)
        if not running.topics.is_wanted(key):
            raise InvalidArgumentError(f"topic {topic!r} is being deleted", path=self.directory)
        running.work.stop_cleaning([key])
        return running.partitions.reload(running.topics.folder_of(key))

    @property
    def offline(self) -> OfflinePartitions:
        """The recovery of offline partitions, with its counts."""
        return self._running.work.offline

    # --- background work by hand: see `background_work`

    def delete_old_segments(self) -> int:
        """Run retention, except in compacted topics; return how many segments were deleted."""
        return self._running.work.delete_old_segments()

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose flush.ms has passed."""
        self._running.work.flush_dirty_logs()

    def checkpoint_recovery_points(self) -> None:
        """Write each log's recovery point. Raises StorageError."""
        self._running.partitions.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets that are above the base of their first segment. Raises StorageError."""
        self._running.partitions.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks. Raises StorageError."""
        self._running.partitions.checkpoint_high_watermarks()

    @property
    def cleaner(self) -> LogCleaner | None:
        """Compaction, for inspection or manual use; None with log.cleaner.enable=false."""
        return self._running.work.cleaner

    # --- inside

    @property
    def _running(self) -> OpenedFolder:
        if self._started is None:
            raise InvalidArgumentError("the log manager is not running", path=self.directory)
        return self._started

    @property
    def _owned(self) -> _Own:
        if self._own is None:
            assert self._running
            raise InvalidArgumentError("only the controllers can change a cluster's topics", path=self.directory)
        return self._own

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            if lock.is_shared:
                logger.error(
                    "%s stays locked until the disk responds or this process ends: threads may still write to it", self.directory
                )
            lock.__exit__(None, None, None)
