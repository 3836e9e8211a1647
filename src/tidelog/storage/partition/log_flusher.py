"""Flushes and deferred writes of a log: its segments, leader epochs and topic id (spec §5.2).

| method | thread that waits for the disk | when it is used |
|---|---|---|
| `flush` | the log's | if the caller needs everything on disk before it continues |
| `flush_aside` | another, if the scheduler's owner has one | after a roll; by flush.ms |
| `flush_soon` | the same | for appends that are answered when they are on disk (`when_flushed`) |
| `write_soon` | the same | for the small files beside the segments, without a sync |

After a disk error the log goes offline. Each `PartitionLog` has a `LogFlusher`. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.storage.partition.availability import Availability
from tidelog.storage.partition.flush_job import FlushJob
from tidelog.storage.partition.held_directory import HeldDirectory
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile
from tidelog.storage.partition.weak_calls import weakly
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.descriptors import is_shortage

logger = logging.getLogger("tidelog.storage")

RETRY_MS = 10
"""The delay, in ms, of writes of small files that were put off because too many files are open."""

Flushed = Callable[[bool], object]
"""Called after a flush, with True if it failed."""


class LogFlusher:
    """Flushes one log."""

    def __init__(
        self,
        local: LocalLog,
        leader_epochs: LeaderEpochCache,
        metadata_file: PartitionMetadataFile,
        availability: Availability,
        scheduler: Scheduler,
    ) -> None:
        self.is_awaited = False
        """Whether a flush requested by appends is in progress. Producers are answered after it: see `when_flushed`."""
        self._local = local
        self._leader_epochs = leader_epochs
        self._metadata_file = metadata_file
        self._availability = availability
        self._scheduler = scheduler
        self._jobs: list[FlushJob] = []
        self._awaiting: list[tuple[int, Flushed]] = []
        self._flush_to = 0
        self._is_writing = False
        self._write_soon = write_soon = weakly(self.write_soon)
        leader_epochs.defer_to(lambda _: write_soon())

    def flush(self, *, force_active: bool = False, up_to: int | None = None) -> None:
        """Flush the log up to the offset `up_to` (exclusive; default: all of it), and move the recovery point.

        With `force_active`, an active segment without records is flushed as well, which a clean shutdown needs. Raises
        LogOfflineError.
        """
        local = self._local
        for job in self._jobs:
            job.take_back()  # A flush in progress on another thread may not be complete.
        # A truncation may have come between a roll and its flush.
        offset = self._within(up_to)
        # If the active segment has records, a recovery point at the log end is enough: closing an idle log costs nothing.
        end = offset + 1 if force_active and not local.segments.active.size_bytes else offset
        with self._availability.writing("flush"):
            if end > local.recovery_point:
                self._leader_epochs.flush()
                local.flush(end)
                local.mark_flushed(offset)

    def flush_rolled(self, up_to: int, snapshot: Path | None) -> None:
        """Flush the segments below `up_to`, and a producer snapshot. The log may have been closed by now."""
        if self._availability.is_writable:
            self.flush_aside(up_to=up_to, snapshots=() if snapshot is None else (self._local.directory / snapshot.name,))

    def flush_aside(self, *, up_to: int | None = None, snapshots: tuple[Path, ...] = ()) -> None:
        """Flush the log like `flush`, but wait on another thread if the scheduler's owner has one.

        If the disk fails there, the log goes offline. Raises LogOfflineError, StorageError.
        """
        local = self._local
        offset = self._within(up_to)
        with self._availability.writing("flush"):
            segments = local.segments.values(local.recovery_point, offset) if offset > local.recovery_point else ()
            job = FlushJob(offset, local.directory, segments, self._leader_epochs.to_be_written(), snapshots)
        self._jobs.append(job)
        self._scheduler.aside(job.work, lambda result: self._flushed(job, result))

    def flush_soon(self) -> None:
        """Begin to flush the log up to its end. `is_awaited` is True until that is done.

        Records appended meanwhile are flushed together afterwards. Without other threads, the flush is done when this returns.
        Raises LogOfflineError, StorageError.
        """
        if self._scheduler.elsewhere is None:
            self.flush()
            return
        self.is_awaited = True
        self._flush_to = self._local.log_end_offset
        if not self._jobs:
            self.flush_aside()

    def when_flushed(self, callback: Flushed) -> None:
        """Call `callback(failed)` after the log's current content has been flushed to disk, or the flush has failed.

        If everything is already flushed, the call is immediate.
        """
        if not self.is_awaited:
            callback(self._availability.is_offline)
        else:
            self._flush_to = self._local.log_end_offset
            self._awaiting.append((self._flush_to, callback))

    def write_soon(self) -> None:
        """Write pending leader epochs and the topic id, on another thread if there is one.

        If the write fails, the log goes offline. If too many files are open, the write is done a little later. Without other
        threads, raises StorageError.
        """
        if self._scheduler.elsewhere is None:
            self._metadata_file.maybe_flush()
            self._leader_epochs.flush()
        elif not self._is_writing and not self._local.is_closed:
            try:
                held = None if HeldDirectory.are_many() else HeldDirectory(self._local.directory)
            except StorageError as error:
                if not is_shortage(error):
                    raise
                held = None
            if held is None:
                self._scheduler.schedule("small-files", self._write_soon, delay_ms=RETRY_MS)
                return
            epochs = self._leader_epochs.to_be_written()

            def write() -> None:
                with held:
                    self._metadata_file.maybe_flush(held)
                    if epochs is not None:
                        epochs(held)

            self._is_writing = True
            self._scheduler.aside(write, self._files_written)

    def _within(self, up_to: int | None) -> int:
        end = self._local.log_end_offset
        return end if up_to is None else min(up_to, end)

    def _flushed(self, job: FlushJob, result: object) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        has_failed = isinstance(result, BaseException)
        if isinstance(result, BaseException):
            job.take_back()
            if is_shortage(result):
                logger.error(
                    "%s: could not flush, because the process has too many open files: %s", self._local.directory, result
                )
            elif not self._local.is_closed:
                self._availability.go_offline("flush", result)
        elif self._availability.is_writable:
            # The log may have been truncated meanwhile.
            self._local.mark_flushed(self._within(job.offset))
        if self.is_awaited:
            self._report_flushed(job, has_failed=has_failed or not self._availability.is_writable)

    def _report_flushed(self, job: FlushJob, *, has_failed: bool) -> None:
        ready = [callback for offset, callback in self._awaiting if has_failed or offset <= job.offset]
        self._awaiting = [] if has_failed else [one for one in self._awaiting if one[0] > job.offset]
        if has_failed or self._local.recovery_point >= self._within(self._flush_to):
            self.is_awaited = False
            ready += [callback for _, callback in self._awaiting]
            self._awaiting = []
        elif not self._jobs:
            try:
                self.flush_aside()
            except StorageError as error:
                logger.error("%s: %s", self._local.directory, error)
                self._report_flushed(job, has_failed=True)
        for callback in ready:
            callback(has_failed)

    def _files_written(self, result: object) -> None:
        self._is_writing = False
        if isinstance(result, BaseException):
            if not is_shortage(result) and not self._local.is_closed:
                self._availability.go_offline("append", result)
        elif self._leader_epochs.is_unwritten and not self._local.is_closed:
            self.write_soon()
