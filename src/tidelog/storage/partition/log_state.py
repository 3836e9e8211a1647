"""What a partition's log consists of, and what its parts do together: roll, flush, go offline (spec §5.2, §5.3).

| part | owns |
|---|---|
| `local` | segments, log end, recovery point |
| `watermarks` | log start, high watermark, last stable offset |
| `producer_state` | producers and their snapshots |
| `leader_epochs` | epochs and their checkpoint |
| `metadata_file` | the topic's id |

Offline: after an I/O error the disk's state is not known any more. Whatever would write refuses from then on (LogOfflineError,
with the reason of the first error); what was acknowledged is still read, as far as the disk gives it. Only a new load, which
recovers, brings the log back.

The base of `PartitionLog`; appending, truncation and retention work on it. One thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import LogOfflineError, StorageError
from tidelog.formats.names import parse_topic_partition_name
from tidelog.model import TopicPartition
from tidelog.storage.partition.flush_job import FlushJob
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.log_events import NO_EVENTS, LogEvents
from tidelog.storage.partition.offset_metadata import LoadedLogOffsets, LogOffsetMetadata
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile
from tidelog.storage.partition.roll_statistics import RollStatistics, warn_of_wide_limits
from tidelog.storage.partition.watermarks import Watermarks
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.storage.segment.descriptors import ensure_spare, is_shortage
from tidelog.storage.segment.segment import LogSegment
from tidelog.storage.segment.segments import LogSegments

logger = logging.getLogger("tidelog.storage")

Flushed = Callable[[bool], object]
"""Called with whether a flush has failed."""


class LogState:
    """The parts of one partition's log; made as a `PartitionLog`."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        offsets: LoadedLogOffsets,
        topic_id: uuid.UUID | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """`topic_id` is what the caller takes the topic's id to be; partition.metadata is read here and written lazily.

        `jitter` is where new segments take their part of segment.jitter.ms from. The high watermark starts at the log
        start; the caller that has the checkpoint calls `update_high_watermark`. Raises InconsistentTopicIdError.
        """
        self.clock = clock
        self.scheduler = scheduler
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.metadata_file = PartitionMetadataFile(directory)
        if topic_id is not None:
            self.metadata_file.record(topic_id)
        self.local = LocalLog(
            directory,
            config,
            clock,
            scheduler,
            segments=segments,
            recovery_point=max(offsets.recovery_point, offsets.log_start_offset),
            next_offset=offsets.next_offset,
            jitter=jitter,
        )
        self.watermarks = Watermarks(self.local, producer_state, offsets.log_start_offset)
        self.watermarks.update_first_unstable_offset()
        self.statistics = RollStatistics()
        self.topic_partition: TopicPartition = parse_topic_partition_name(directory.name)
        self.offline_reason: str | None = None
        self.events: LogEvents = NO_EVENTS
        self.is_flush_awaited = False
        """Whether a flush is under way that appends have asked for: who wrote is answered after it, see `when_flushed`."""
        self._jobs: list[FlushJob] = []
        self._awaiting: list[tuple[int, Flushed]] = []
        self._flush_to = 0
        self._is_writing = False
        leader_epochs.defer_to(lambda _: self.write_soon())
        self._warn_of_settings()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"

    # --- what it is

    @property
    def directory(self) -> Path:
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @property
    def message_format(self) -> int:
        """The format of the topic's messages: 0, 1 or 2."""
        return self.config.magic

    @property
    def segments(self) -> LogSegments:
        return self.local.segments

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id, None as long as nobody has given it."""
        return self.metadata_file.topic_id

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self.segments.size_bytes

    @property
    def log_start_offset(self) -> int:
        """The first offset that is still to be read."""
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that comes next."""
        return self.local.log_end_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The same with its place."""
        return self.local.log_end_offset_metadata

    @property
    def high_watermark(self) -> int:
        """Where read_uncommitted ends."""
        return self.watermarks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends."""
        return self.watermarks.last_stable_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first undecided transaction begins."""
        return self.watermarks.first_unstable_offset

    @property
    def recovery_point(self) -> int:
        """Up to here, exclusive, everything is on the disk."""
        return self.local.recovery_point

    @property
    def unflushed_messages(self) -> int:
        """How many offsets lie between the recovery point and the log end."""
        return self.local.unflushed_messages

    @property
    def last_flush_ms(self) -> int:
        """When the log was last forced to the disk, or opened (epoch ms)."""
        return self.local.last_flush_ms

    # --- offline

    @property
    def is_offline(self) -> bool:
        """Whether an I/O error has ended writing."""
        return self.offline_reason is not None

    def check_writable(self) -> None:
        """Raise LogOfflineError if the log is offline or closed."""
        if self.offline_reason is not None:
            raise LogOfflineError(f"the partition is offline: {self.offline_reason}", path=self.directory)
        self.local.check_open()

    def go_offline(self, what: str, error: BaseException) -> LogOfflineError:
        """Take the log offline because of `error` and return what is to be raised; the first reason stays."""
        self.local.has_failed = True
        if self.offline_reason is None:
            self.offline_reason = f"{what}: {error}"
            logger.error("%s: offline after an error: %s", self.directory, self.offline_reason)
            self.events.went_offline(self)
        return LogOfflineError(f"the partition is offline: {self.offline_reason}", path=self.directory)

    @contextlib.contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Refuse where the log is offline or closed; take it offline if the disk refuses. `what` is for the reason.

        A process without descriptors is no reason: what needs some is not begun then. Raises LogOfflineError; StorageError
        there, after which it may be tried again.
        """
        self.check_writable()
        try:
            ensure_spare()
        except OSError as error:
            raise out_of_files(what, self.directory, error) from error
        try:
            yield
        except LogOfflineError:
            raise
        except OSError as error:
            raise self.go_offline(what, error) from error

    # --- rolling and flushing

    def roll(self, expected_next_offset: int = 0, *, by_time: bool = False) -> LogSegment:
        """Begin a new segment, at `expected_next_offset` or the log end, whichever is more; return it.

        A snapshot of the producers is written for its base; the segments before it are flushed by the next tick. Raises
        InvalidArgumentError where a segment begins there already, LogOfflineError.
        """
        with self.writing("roll"):
            finished = self.segments.active
            if finished.size_bytes:
                self.statistics.note_roll(finished, by_time=by_time)
            segment = self.local.roll(expected_next_offset)
            self.producer_state.map_end_offset = segment.base_offset
            snapshot = self.producer_state.take_snapshot(sync=False)
            self.watermarks.on_log_end_moved()
        self.scheduler.schedule("flush-log", lambda: self._flush_rolled(segment.base_offset, snapshot))
        if finished.size_bytes:
            self.events.segment_finished(self, finished)
        return segment

    def flush(self, *, force_active: bool = False, up_to: int | None = None) -> None:
        """Force the log to the disk, up to the offset `up_to` (exclusive; default: all of it), and move the recovery point.

        With `force_active` an active segment without records is flushed as well, which a clean end needs. Raises
        LogOfflineError.
        """
        # A truncation may have come between a roll and its flush.
        for job in self._jobs:
            job.take_back()  # What is under way on another thread is not known to be done.
        offset = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        # Where the active segment has records, being flushed up to the log end is enough: an idle log costs a clean end nothing.
        end = offset + 1 if force_active and not self.segments.active.size_bytes else offset
        with self.writing("flush"):
            if end > self.recovery_point:
                self.leader_epochs.flush()
                self.local.flush(end)
                self.local.mark_flushed(offset)

    def _flush_rolled(self, offset: int, snapshot: Path | None) -> None:
        if not self.is_offline and not self.local.is_closed:
            self.flush_aside(up_to=offset, snapshots=() if snapshot is None else (self.directory / snapshot.name,))

    def flush_aside(self, *, up_to: int | None = None, snapshots: tuple[Path, ...] = ()) -> None:
        """Force the log to the disk as `flush` does, the waiting on another thread where the scheduler's owner has one.

        If the disk refuses there, the log goes offline. Raises LogOfflineError, StorageError.
        """
        with self.writing("flush"):
            job = FlushJob(self, self.log_end_offset if up_to is None else min(up_to, self.log_end_offset), snapshots)
        self._jobs.append(job)
        self.scheduler.aside(job.work, lambda result: self._flushed(job, result))

    def flush_soon(self) -> None:
        """Have the log forced to the disk up to its end; `is_flush_awaited` until that is done.

        What is appended meanwhile goes together. Without threads it is done when this returns. Raises LogOfflineError,
        StorageError.
        """
        if self.scheduler.elsewhere is None:
            self.flush()
            return
        self.is_flush_awaited = True
        self._flush_to = self.log_end_offset
        if not self._jobs:
            self.flush_aside()

    def when_flushed(self, callback: Flushed) -> None:
        """Have `callback` called once what the log holds now is on the disk, at once if it is; with whether that failed."""
        if not self.is_flush_awaited:
            callback(self.is_offline)
        else:
            self._flush_to = self.log_end_offset
            self._awaiting.append((self._flush_to, callback))

    def _flushed(self, job: FlushJob, result: object) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        has_failed = isinstance(result, BaseException)
        if isinstance(result, BaseException):
            job.take_back()
            if is_shortage(result):
                logger.error("%s: not flushed, the process has too many open files: %s", self.directory, result)
            elif not self.local.is_closed:
                self.go_offline("flush", result)
        elif not self.local.is_closed and not self.is_offline:
            # A truncation may have come meanwhile.
            self.local.mark_flushed(min(job.offset, self.log_end_offset))
        if self.is_flush_awaited:
            self._report_flushed(job, has_failed=has_failed or self.is_offline or self.local.is_closed)

    def _report_flushed(self, job: FlushJob, *, has_failed: bool) -> None:
        ready = [callback for offset, callback in self._awaiting if has_failed or offset <= job.offset]
        self._awaiting = [] if has_failed else [one for one in self._awaiting if one[0] > job.offset]
        if has_failed or self.recovery_point >= min(self._flush_to, self.log_end_offset):
            self.is_flush_awaited = False
            ready += [callback for _, callback in self._awaiting]
            self._awaiting = []
        elif not self._jobs:
            try:
                self.flush_aside()
            except StorageError as error:
                logger.error("%s: %s", self.directory, error)
                self._report_flushed(job, has_failed=True)
        for callback in ready:
            callback(has_failed)

    def write_soon(self) -> None:
        """Have the leader epochs and the topic's id written that are not yet, on another thread where there is one.

        If that fails the log goes offline. Raises StorageError without threads.
        """
        if self.scheduler.elsewhere is None:
            self.metadata_file.maybe_flush()
            self.leader_epochs.flush()
        elif not self._is_writing:
            self._is_writing = True
            epochs = self.leader_epochs.to_be_written()

            def write() -> None:
                self.metadata_file.maybe_flush()
                if epochs is not None:
                    epochs()

            self.scheduler.aside(write, self._files_written)

    def _files_written(self, result: object) -> None:
        self._is_writing = False
        if isinstance(result, BaseException):
            if not is_shortage(result) and not self.local.is_closed:
                self.go_offline("append", result)
        elif self.leader_epochs.is_unwritten and not self.local.is_closed:
            self.write_soon()

    # --- producers' snapshots

    def delete_producer_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Rename the snapshots at the bases of segments that are gone, and remove them later. Raises StorageError."""
        renamed = [self.producer_state.remove_and_mark_snapshot_for_deletion(segment.base_offset) for segment in segments]
        going = [path for path in renamed if path is not None]
        if going:
            self.scheduler.schedule(
                "delete-producer-snapshot", lambda: Rest(partial(_remove_all, going)), delay_ms=self.config.file_delete_delay_ms
            )

    # --- settings

    def update_config(self, config: LogConfig) -> None:
        """Take over a new configuration; segments that are there keep their index interval. Raises LogOfflineError."""
        self.local.config = config
        if config.magic < 2 and not self.leader_epochs.is_empty:
            with self.writing("clear the leader epochs"):
                self.leader_epochs.clear_and_flush()
        self._warn_of_settings()

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Note the topic's id; it is written with the next append. Raises InconsistentTopicIdError."""
        self.metadata_file.record(topic_id)

    def _warn_of_settings(self) -> None:
        warn_of_wide_limits(self.config, self.directory.parent, self.topic_partition.topic)


def out_of_files(what: str, directory: Path, error: OSError) -> StorageError:
    """Return what is raised where a log has no descriptor to be had for `what`: nothing was changed, it may be tried again."""
    return StorageError(f"{what}: the process has too many open files, it is to be tried again: {error}", path=directory)


def _remove_all(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove a snapshot: {error.strerror}", path=path) from error
