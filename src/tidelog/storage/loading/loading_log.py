"""A log while it is being loaded: its folder, its segments so far, and common steps.

`loader` creates the object, `log_recovery` recovers its segments, and `PartitionLog` takes over its parts. Not thread-safe.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory
from tidelog.records.batch import BatchHeader
from tidelog.storage.loading.producer_rebuild import rebuild_producer_state
from tidelog.storage.partition.file_deletion import delete_segment_files
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments


class LoadingLog:
    """`recovery_point` and `log_start_offset` are from the checkpoints. `had_clean_shutdown` says whether the data folder had the
    clean-shutdown marker.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        leader_epochs: LeaderEpochCache,
        had_clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int,
        producer_id_expiration_ms: int,
        jitter: random.Random | None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock
        self.scheduler = scheduler
        self.leader_epochs = leader_epochs
        self.had_clean_shutdown = had_clean_shutdown
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.segments = LogSegments(directory=directory)
        self.newest: BatchHeader | None = None
        """The last batch of a cleanly closed log; None if the last segment has no batch."""
        self._topic_partition = names.parse_topic_partition_name(directory.name or directory.resolve().name)
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._jitter = jitter

    def open_segment(self, base_offset: int, *, suffix: str = "") -> LogSegment:
        """Open a segment's files, without adding it to the log. Raises StorageError, and InvalidArgumentError for a file
        that is too large.
        """
        return LogSegment.open(
            self.directory,
            base_offset,
            self.config,
            self.clock,
            file_already_exists=True,
            suffix=suffix,
            jitter=self._jitter,
        )

    def begin_segment(self, base_offset: int) -> None:
        """Add an empty segment. Raises StorageError."""
        config = self.config
        segment = LogSegment.open(
            self.directory,
            base_offset,
            config,
            self.clock,
            init_file_size=config.segment_bytes if config.preallocate else 0,
            preallocate=config.preallocate,
            jitter=self._jitter,
        )
        self.segments.add(segment)

    def delete_segments(self, segments: Iterable[LogSegment]) -> None:
        """Remove segments durably, the last one first, so that a crash leaves no hole. Raises StorageError."""
        going = list(segments)
        if not going:
            return
        for segment in reversed(going):
            self.segments.remove(segment.base_offset)
            delete_segment_files([segment], self.scheduler, self.config.file_delete_delay_ms)
        self.delete_snapshots(going)
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise StorageError(f"cannot sync a folder: {error.strerror}", path=self.directory) from error

    def delete_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Remove the producer snapshots at the bases of removed segments. Raises StorageError."""
        state = self.new_producer_state()
        for segment in segments:
            path = state.remove_and_mark_snapshot_for_deletion(segment.base_offset)
            if path is not None:
                unlink = partial(path.unlink, missing_ok=True)
                self.scheduler.schedule("delete-producer-snapshot", unlink, delay_ms=self.config.file_delete_delay_ms)

    def new_producer_state(self) -> ProducerStateManager:
        """Return an empty producer state. All states of a log share the snapshots on disk."""
        return ProducerStateManager(
            self._topic_partition, self.directory, self.clock, producer_id_expiration_ms=self._producer_id_expiration_ms
        )

    def rebuild_producer_state(
        self,
        state: ProducerStateManager,
        log_start_offset: int,
        last_offset: int,
        *,
        segments: LogSegments | None = None,
        had_clean_shutdown: bool = False,
    ) -> None:
        """Advance a producer state to `last_offset`, exclusive, from all segments, or from the given ones: see
        `producer_rebuild`.
        """
        rebuild_producer_state(
            state,
            self.segments if segments is None else segments,
            log_start_offset,
            last_offset,
            magic=self.config.magic,
            now_ms=self.clock.now_ms(),
            had_clean_shutdown=had_clean_shutdown,
        )
