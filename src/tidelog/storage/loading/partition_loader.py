"""Loads the partitions of a data folder: all partitions at startup, and later single partitions that are new or loaded again
(spec §6.1).

Only partitions that must be recovered are loaded on several threads: cleanly closed partitions load so fast that threads would
hinder each other. `Partitions` owns a loader, and stores its results.
"""

from __future__ import annotations

import logging
import random
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, StorageError, TidelogError
from tidelog.formats import names
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.model import TopicPartition
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.loading.loader import LOST_END, RecoveryProgress, load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS
from tidelog.storage.scheduler import Scheduler

logger = logging.getLogger("tidelog.storage")


class PartitionFolder(NamedTuple):
    """A partition to load. The topic id is None if it is unknown."""

    key: TopicPartition
    directory: Path
    config: LogConfig
    topic_id: uuid.UUID | None


class PartitionLoader:
    """Loads the partitions of one folder. `recovery_progress` is called with the progress of one partition's recovery."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        checkpoints: DirCheckpoints,
        *,
        had_clean_shutdown: bool,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        recovery_progress: Callable[[RecoveryProgress], None] | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.had_clean_shutdown = had_clean_shutdown
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._clock = clock
        self._scheduler = scheduler
        self._checkpoints = checkpoints
        self._recovery_progress = recovery_progress
        self._jitter = jitter

    @contextmanager
    def loaded(self, folders: list[PartitionFolder], threads: int) -> Iterator[Iterable[PartitionLog | Exception]]:
        """Load partitions on `threads` threads. Yield their logs, or errors, in the order of `folders`."""
        if threads == 1:
            yield map(self._try_load, folders)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="log-recovery")
        try:
            yield pool.map(self._try_load, folders)
        finally:
            # After an interrupt, no further loads may begin.
            pool.shutdown(wait=True, cancel_futures=True)

    def _try_load(self, folder: PartitionFolder) -> PartitionLog | Exception:
        key = folder.key
        try:
            log = self._load(
                folder,
                recovery_point=self._checkpoints.recovery_points.get(key, 0),
                log_start_offset=self._believed_start(folder),
                had_clean_shutdown=self.had_clean_shutdown,
            )
        except (TidelogError, OSError) as error:
            return error
        high_watermark = self._checkpoints.high_watermarks.get(key)
        if high_watermark is not None:
            end_offset, recovery_point = log.log_end_offset, self._checkpoints.recovery_points.get(key, 0)
            if recovery_point <= end_offset < high_watermark:
                logger.warning(LOST_END, folder.directory, end_offset, names.HIGH_WATERMARK_CHECKPOINT, high_watermark)
            log.update_high_watermark(high_watermark)
        return log

    def _believed_start(self, folder: PartitionFolder) -> int:
        """Return the log start offset in the checkpoint, or the first leader epoch's start offset if that is lower: trusting the
        checkpoint would then delete records by mistake.

        Deleting records moves the first epoch's start offset before the checkpoint is written. Kafka trusts only the checkpoint.
        """
        offset = self._checkpoints.log_start_offsets.get(folder.key, 0)
        if offset <= 0 or folder.config.magic < 2:
            return offset
        try:
            first = LeaderEpochs.read(folder.directory / names.LEADER_EPOCH_CHECKPOINT).earliest
        except (CorruptCheckpointError, StorageError):
            return offset  # Loading the log reports the error.
        if first is None or first.start_offset >= offset:
            return offset
        logger.warning(
            "%s: the log start offset in %s is %d, but leader epoch %d begins at offset %d: keeping the records in between",
            folder.directory,
            names.LOG_START_OFFSET_CHECKPOINT,
            offset,
            first.epoch,
            first.start_offset,
        )
        return first.start_offset

    def loading_again(self, folder: PartitionFolder, old: PartitionLog | None) -> Callable[[], PartitionLog]:
        """Return a function that loads and recovers an offline partition. It may be called on any thread, and raises what loading
        raises.

        `old` is the partition's previous log, or None if it had none.
        """
        key, before = folder.key, self._checkpoints
        recovery_point = before.recovery_points.get(key, 0) if old is None else old.recovery_point
        log_start_offset = before.log_start_offsets.get(key, 0) if old is None else old.log_start_offset
        high_watermark = before.high_watermarks.get(key, 0) if old is None else old.high_watermark

        def work() -> PartitionLog:
            log = self._load(folder, recovery_point=recovery_point, log_start_offset=log_start_offset, had_clean_shutdown=False)
            log.update_high_watermark(high_watermark)
            return log

        return work

    def made(self, folder: PartitionFolder) -> PartitionLog:
        """Create a partition's folder, and return its empty log, which is not yet published. Callable on any thread.

        Raises StorageError. After an error nothing is left behind.
        """
        try:
            folder.directory.mkdir()
        except OSError as error:
            raise StorageError(f"cannot create a partition's folder: {error.strerror}", path=folder.directory) from error
        try:
            return self._load(folder, recovery_point=0, log_start_offset=0, had_clean_shutdown=True)
        except BaseException:
            shutil.rmtree(folder.directory, ignore_errors=True)
            raise

    def _load(
        self, folder: PartitionFolder, *, recovery_point: int, log_start_offset: int, had_clean_shutdown: bool
    ) -> PartitionLog:
        return load(
            folder.directory,
            folder.config,
            self._clock,
            self._scheduler,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            had_clean_shutdown=had_clean_shutdown,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            progress=self._recovery_progress,
            topic_id=folder.topic_id,
            jitter=self._jitter,
        )
