"""A data folder's periodic work on the scheduler: retention, flushes, checkpoints, compaction, time maps.

| task | what | how often: `manager_config` |
|---|---|---|
| log-retention | deletes segments whose retention has expired, in topics that are not compacted | log.retention.check.… |
| log-cleaner | compacts topics, and deletes their old segments (`log_cleaner`) | from the start on, log.cleaner.backoff.ms |
| log-flusher | flushes logs to the disk by flush.ms | log.flush.scheduler.… |
| …-checkpoint | writes recovery points, log start offsets and high watermarks (`dir_checkpoints`) | ….checkpoint.… |
| removed-files | takes a log offline if its files were removed (`removed_files`) | replica.high.watermark.checkpoint.… |
| time-map | writes time maps of finished segments (`time_map_writer`) | at the next tick |

Topics without a configuration are exempt from retention and compaction. An I/O error is logged and takes its log offline; the
other logs continue.

`BackgroundWork` also receives the logs' events (`log_events`), because a truncation must first abort a running compaction.

`log_manager` owns one `BackgroundWork` for its whole life. Only one thread at a time may use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.formats.non_blocking_read import NotCachedError, blocking, non_blocking
from tidelog.model import TopicPartition
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.compaction.cleaner_manager import CleanerManager
from tidelog.storage.compaction.log_cleaner import LogCleaner
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.offline_partitions import OfflinePartitions
from tidelog.storage.partition.log_events import LogEvents, ReportingLog
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions
from tidelog.storage.removed_files import RemovedFiles
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.time_map_writer import TimeMapWriter
from tidelog.storage.topics.kept_topics import KeptTopics

SEGMENTS_AT_ONCE = 4
"""How many segments are deleted before the time is checked."""

REMOVALS_AT_THE_END_S = 3.0
"""How long shutdown continues to remove files, in seconds."""

MAX_WARMINGS = 16
"""After this many attempts in a row that find an index not in memory, memory is assumed to be short, and retention waits for the
disk.
"""


class BackgroundWork(LogEvents):
    """Does the background work for `partitions` of the data folder `directory`, once `schedule` was called."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        scheduler: Scheduler,
        config: ManagerConfig,
        partitions: Partitions,
        topics: KeptTopics,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._config = config
        self._partitions = partitions
        self._topics = topics
        self._time_maps = TimeMapWriter(scheduler) if config.is_time_map_enabled else None
        self._is_keeping = False
        self._warmings = 0
        self.offline = OfflinePartitions(partitions, clock, scheduler, topics.folder_of, topics.is_wanted)
        self._removed_files = RemovedFiles(partitions, scheduler)
        self.cleaner: LogCleaner | None = None
        if config.is_cleaner_enabled:
            manager = CleanerManager(directory, partitions.logs, clock, scheduler)
            self.cleaner = LogCleaner(manager, Cleaner(clock, memory_bytes=config.cleaner_dedupe_buffer_bytes))

    # --- when

    def schedule(self) -> None:
        """Schedule all tasks."""
        config, partitions = self._config, self._partitions
        if partitions.recoverable():
            self.offline.arm()
        delay_ms = config.initial_task_delay_ms
        for name, task, period_ms in (
            ("log-retention", self._begin_retention, config.retention_check_interval_ms),
            ("log-flusher", self._flush_dirty_logs, config.flush_scheduler_interval_ms),
            ("recovery-point-checkpoint", partitions.note_recovery_points, config.recovery_point_checkpoint_interval_ms),
            (
                "log-start-offset-checkpoint",
                partitions.note_log_start_offsets,
                config.log_start_offset_checkpoint_interval_ms,
            ),
        ):
            self._scheduler.schedule(name, task, delay_ms=delay_ms, period_ms=period_ms)
        period_ms = config.high_watermark_checkpoint_interval_ms
        self._scheduler.schedule(
            "high-watermark-checkpoint", partitions.note_high_watermarks, delay_ms=period_ms, period_ms=period_ms
        )
        self._scheduler.schedule("removed-files", self._removed_files.look, delay_ms=period_ms, period_ms=period_ms)
        if self.cleaner is not None:
            self.cleaner.start(self._scheduler, backoff_ms=config.cleaner_backoff_ms)

    def reconfigure(self, config: ManagerConfig) -> None:
        """Apply the settings of `config` that may change while a broker runs."""
        self._config = config
        if self.cleaner is not None:
            self.cleaner.reconfigure(config.cleaner_backoff_ms, config.cleaner_dedupe_buffer_bytes)

    def stop(self) -> None:
        """Stop: finish pending flushes, remove files for a limited time, and abort a running compaction."""
        self.offline.stop()
        if self.cleaner is not None:
            self.cleaner.shutdown()
        self._scheduler.shutdown(REMOVALS_AT_THE_END_S)
        if self.cleaner is not None:
            self.cleaner.manager.finish()

    def abandon(self) -> None:
        """Stop at once, and leave the files as a killed process does."""
        self.offline.stop()
        self._scheduler.abandon()
        if self.cleaner is not None:
            self.cleaner.abandon()

    def finish(self) -> None:
        """Write time maps of the last segments, and the checkpoints, after the logs were closed. Raises StorageError."""
        partitions = self._partitions
        if self._time_maps is not None:
            self._time_maps.finish(log for key, log in partitions.logs.items() if partitions.was_appended_to(key))
        partitions.write_checkpoints()

    # --- what

    def delete_old_segments(self) -> int:
        """Delete the segments whose retention has expired, and return their number. In compacted topics the cleaner deletes
        them.
        """
        deleted = 0
        for key, log in self._partitions.online():
            if self._topics.is_known(key.topic) and not log.config.is_compacted:
                with _offline_is_reported():
                    deleted += log.delete_old_segments()
        return deleted

    def _begin_retention(self) -> None:
        if not self._is_keeping:  # Otherwise the last run is still in progress.
            self._go_on_with_retention([key for key, _ in self._partitions.online()])

    def _go_on_with_retention(self, keys: list[TopicPartition]) -> None:
        """Apply retention to a few segments at a time, because renaming their files takes time and other work waits for
        this thread.
        """
        while keys:
            key = keys.pop()
            log = self._partitions.logs.get(key)
            deleted = 0
            self._is_keeping = False  # In case of an unexpected failure.
            if log is not None and not log.is_offline and self._topics.is_known(key.topic) and not log.config.is_compacted:
                try:
                    with _offline_is_reported(), non_blocking() if self._may_not_wait else blocking():
                        deleted = log.delete_old_segments(SEGMENTS_AT_ONCE)
                        self._warmings = 0
                except NotCachedError as missing:  # An index that was not used for a long time.
                    self._is_keeping = True
                    self._warmings += not missing.is_progress
                    keys.append(key)
                    self._scheduler.aside(missing.prefetch, lambda _: self._go_on_with_retention(keys))
                    return
            if deleted == SEGMENTS_AT_ONCE:
                keys.append(key)
            if keys and self._scheduler.is_over:
                self._is_keeping = True
                self._scheduler.schedule("log-retention", lambda: self._go_on_with_retention(keys))
                return

    @property
    def _may_not_wait(self) -> bool:
        return self._scheduler.elsewhere is not None and self._warmings < MAX_WARMINGS

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose flush.ms has passed. Setting the clock back does not delay a flush."""
        for log in self._dirty_logs():
            with _offline_is_reported():
                log.flush()

    def _flush_dirty_logs(self) -> None:
        for log in self._dirty_logs():
            with _offline_is_reported():
                log.flush_aside()

    def _dirty_logs(self) -> list[PartitionLog]:
        now_ms = self._clock.now_ms()
        return [
            log
            for _, log in self._partitions.online()
            if log.local.unflushed_messages and not 0 <= now_ms - log.local.last_flush_ms < log.config.flush_ms
        ]

    # --- compaction, and what must not meet it

    def stop_cleaning(self, keys: Iterable[TopicPartition]) -> None:
        """Abort the compaction of one of these partitions, if it is running."""
        if self.cleaner is not None:
            for key in keys:
                self.cleaner.manager.abort_cleaning(key)

    def forget_cleaning(self, keys: Iterable[TopicPartition]) -> None:
        """Drop the cleaner's checkpoints of removed partitions."""
        if self.cleaner is not None:
            for key in keys:
                self.cleaner.manager.remove_checkpoint(key)

    # --- what the logs tell

    def segment_finished(self, log: ReportingLog, segment: LogSegment) -> None:
        """Schedule the writing of the segment's time map."""
        if self._time_maps is not None:
            self._time_maps.add(log, segment)

    def before_truncation(self, log: ReportingLog) -> None:
        """Abort the log's compaction."""
        self.stop_cleaning([log.topic_partition])

    def after_truncation(self, log: ReportingLog) -> None:
        """Lower the cleaner's checkpoint."""
        if self.cleaner is not None:
            self.cleaner.manager.maybe_truncate_checkpoint(log.topic_partition, log.log_end_offset)

    def before_removal(self, key: TopicPartition) -> None:
        """Abort the log's compaction."""
        self.stop_cleaning([key])

    def went_offline(self, log: ReportingLog) -> None:
        """Abort the log's compaction, and schedule its recovery; the abort must come before the log's files are loaded again."""
        if self.cleaner is not None:
            self.cleaner.went_offline(log.topic_partition)
        self._partitions.changed.add(log.topic_partition.topic)
        self.offline.went(log.topic_partition)


def _offline_is_reported() -> contextlib.suppress:
    # The log has gone offline and has logged why.
    return contextlib.suppress(StorageError)
