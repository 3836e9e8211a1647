"""One partition's log: the interface for brokers, loaders and tools (spec §5, §8, §13, §14).

| part | owns |
|---|---|
| `local` | segments, log end, recovery point; positions of reads |
| `watermarks` | log start, high watermark, last stable offset |
| `producer_state` | producers and their snapshots |
| `leader_epochs` | epochs and their checkpoint |
| `metadata_file` | the topic's id |
| `availability` | whether the log accepts writes, or is offline |
| `flusher` | what is flushed, and when |
| `appends` | the steps of an append |
| `offset_lookup` | the search for offsets by time |
| `removals` | removal of records: retention, DeleteRecords, truncation, compaction |

Invariants
    * Once an append returns, its records are in the log at the returned offsets; a failed append leaves nothing.
    * Offsets grow; log start ≤ last stable offset ≤ high watermark ≤ log end.
    * After an I/O error nothing more is written (LogOfflineError, with the reason), but the log can be read.

`loader.load` creates the log. Not thread-safe: it has no locks. Deferred work waits in the scheduler for the owner's tick.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import LogOfflineError, OffsetOutOfRangeError, TidelogError
from tidelog.formats.leader_epochs import UNDEFINED_EPOCH
from tidelog.formats.names import parse_topic_partition_name
from tidelog.model import TopicPartition
from tidelog.records.compression import Bytes
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition import offset_lookup
from tidelog.storage.partition.append.append_info import AppendInfo
from tidelog.storage.partition.append.appends import Appends, Prepared
from tidelog.storage.partition.availability import Availability
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.log_events import NO_EVENTS, LogEvents
from tidelog.storage.partition.log_flusher import Flushed, LogFlusher
from tidelog.storage.partition.offset_metadata import LoadedLogOffsets, LogOffsetMetadata
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile
from tidelog.storage.partition.removals import Removals
from tidelog.storage.partition.roll_statistics import RollStatistics, warn_of_wide_limits
from tidelog.storage.partition.watermarks import FetchIsolation, Watermarks
from tidelog.storage.partition.weak_calls import weakly, with_weak
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import FetchData, LogSegment, LogSlice
from tidelog.storage.segment.log_segments import LogSegments

PRODUCER_EXPIRATION_CHECK_MS = 600_000


class PartitionLog:
    """One partition's log: append, read, look up, truncate, flush, retention. `segments` has at least the active segment."""

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
        """`topic_id` is the id that the caller expects; partition.metadata is read here and written lazily.

        `jitter` is the random generator for segment.jitter.ms. The high watermark starts at the log start; a caller with a
        checkpoint calls `update_high_watermark`. Raises InconsistentTopicIdError.
        """
        self.clock = clock
        self.scheduler = scheduler
        self.topic_partition: TopicPartition = parse_topic_partition_name(directory.name)
        self.statistics = RollStatistics()
        self.events: LogEvents = NO_EVENTS
        self.segments = segments
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
        self._availability = Availability(self.local, with_weak(self, lambda log: log.events.went_offline(log)))
        self._flusher = LogFlusher(self.local, leader_epochs, self.metadata_file, self._availability, scheduler)
        parts = self.local, self.watermarks, producer_state, leader_epochs
        self._appends = Appends(*parts, self.metadata_file, self._availability, self._flusher, clock, weakly(self.roll))
        self.append_plain_fast = self._appends.plain_fast
        self._removals = Removals(*parts, self._availability, clock, scheduler, weakly(self.roll))
        self._expire = partial(scheduler.in_slices, "producer-expiration")
        ms = PRODUCER_EXPIRATION_CHECK_MS
        self._expiration = scheduler.schedule("producer-expiration", self.remove_expired_producers, delay_ms=ms, period_ms=ms)
        warn_of_wide_limits(config, directory.parent, self.topic_partition.topic)

    def __repr__(self) -> str:
        return f"PartitionLog({str(self.directory)!r})"

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        """The topic's configuration."""
        return self.local.config

    @property
    def message_format(self) -> int:
        """The format of the topic's messages: 0, 1 or 2."""
        return self.config.magic

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id, None until it is assigned."""
        return self.metadata_file.topic_id

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self.segments.size_bytes

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.local.log_end_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The log end offset with its position."""
        return self.local.log_end_offset_metadata

    @property
    def high_watermark(self) -> int:
        """The offset at which reads with read_uncommitted end."""
        return self.watermarks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset at which reads with read_committed end."""
        return self.watermarks.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """All records below this offset are on disk."""
        return self.local.recovery_point

    # --- offline

    @property
    def offline_reason(self) -> str | None:
        """Why the log is offline; None if it is online."""
        return self._availability.offline_reason

    @property
    def is_offline(self) -> bool:
        """Whether an I/O error has ended writing."""
        return self._availability.is_offline

    def go_offline(self, what: str, error: BaseException) -> LogOfflineError:
        """Take the log offline because of `error`, and return the error to raise. The first reason is kept."""
        return self._availability.go_offline(what, error)

    def writing(self, what: str) -> contextlib.AbstractContextManager[None]:
        """See `Availability.writing`."""
        return self._availability.writing(what)

    # --- appends

    def append_as_leader(
        self,
        records: Bytes,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_hurried: bool = False,
        prepared: Prepared | None = None,
    ) -> AppendInfo:
        """Assign offsets and timestamps to the records, and append them: see `Appends.as_leader`."""
        return self._appends.as_leader(records, leader_epoch, origin, is_hurried, prepared)

    def prepare_append(
        self, records: Bytes, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Callable[[], Prepared]:
        """Return the part of an append that decompresses, checks and converts records: see `Appends.prepare`."""
        return self._appends.prepare(records, leader_epoch, origin)

    def append_as_follower(self, records: Bytes, leader_epoch: int | None = None) -> AppendInfo:
        """Append batches as received from the leader of `leader_epoch`: see `Appends.as_follower`."""
        return self._appends.as_follower(records, leader_epoch)

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Store the start of an epoch, when this broker becomes the leader in it. Raises LogOfflineError."""
        if self.config.magic >= 2:
            with self.writing("store a leader epoch"):
                self.leader_epochs.assign(leader_epoch, start_offset)

    def note_leader_epoch_soon(self, leader_epoch: int, start_offset: int) -> None:
        """Store the epoch in memory at once, and in the file soon. A crash may lose an epoch without records."""
        if self.config.magic >= 2:
            with self.writing("store a leader epoch"):
                self.leader_epochs.assign_soon(leader_epoch, start_offset)
                self._flusher.write_soon()

    # --- reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        min_one_message: bool = True,
    ) -> FetchData:
        """Return up to `max_length` bytes, beginning with the batch that has `start_offset`, or the next batch.

        With `min_one_message` the first batch is returned whole, whatever its size. With TXN_COMMITTED the aborted transactions
        are included. Raises OffsetOutOfRangeError below the log start and above the log end, CorruptDataError, StorageError.
        """
        return self.locate(start_offset, max_length, isolation, min_one_message).load()

    def locate(self, start_offset: int, max_length: int, isolation: FetchIsolation, min_one_message: bool) -> LogSlice:
        """Return the location of the bytes of a `read`, for callers that send them unread. Raises what `read` raises."""
        watermarks = self.watermarks
        if start_offset < watermarks.log_start_offset:
            raise OffsetOutOfRangeError(
                "the offset is below the log start",
                path=self.directory,
                found=start_offset,
                expected=f"at least {self.log_start_offset}",
            )
        return self.local.locate(
            start_offset,
            max_length,
            min_one_message=min_one_message,
            max_offset=watermarks.end_of(isolation),
            include_aborted=isolation is FetchIsolation.TXN_COMMITTED,
        )

    fetch_offset_by_timestamp = offset_lookup.fetch_offset_by_timestamp
    fetch_offset_for_timestamp = offset_lookup.fetch_offset_for_timestamp
    legacy_fetch_offsets_before = offset_lookup.legacy_fetch_offsets_before

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return what `LeaderEpochs.end_offset_for` returns, but None instead of (-1, -1) (spec §14)."""
        found = self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found[0] == UNDEFINED_EPOCH else found

    # --- watermarks

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        """Set the high watermark, limited to the log's offsets, and return it."""
        return self.watermarks.update_high_watermark(offset)

    # --- rolls and flushes

    def roll(self, expected_next_offset: int = 0, *, by_time: bool = False) -> LogSegment:
        """Begin a new segment at `expected_next_offset` or the log end, whichever is higher, and return it.

        A producer snapshot is written for the segment's base offset; the next tick flushes the segments before it. Raises
        InvalidArgumentError if a segment begins there already, LogOfflineError.
        """
        with self.writing("roll"):
            finished = self.segments.active
            if finished.size_bytes:
                self.statistics.note_roll(finished, by_time=by_time)
            segment = self.local.roll(expected_next_offset)
            self.producer_state.map_end_offset = segment.base_offset
            snapshot = self.producer_state.take_snapshot(sync=False)
            self.watermarks.on_log_end_moved()
        self.scheduler.schedule("flush-log", lambda: self._flusher.flush_rolled(segment.base_offset, snapshot))
        if finished.size_bytes:
            self.events.segment_finished(self, finished)
        return segment

    @property
    def is_flush_awaited(self) -> bool:
        """Whether a flush requested by appends is in progress. Producers are answered after it: see `when_flushed`."""
        return self._flusher.is_awaited

    def when_flushed(self, callback: Flushed) -> None:
        """Call `callback(failed)` after the log's current content has been flushed: see `LogFlusher.when_flushed`."""
        self._flusher.when_flushed(callback)

    def flush(self, *, force_active: bool = False, up_to: int | None = None) -> None:
        """Flush the log, see `LogFlusher.flush`. Raises LogOfflineError."""
        self._flusher.flush(force_active=force_active, up_to=up_to)

    def flush_aside(self) -> None:
        """Flush the log, on another thread if there is one. Raises LogOfflineError, StorageError."""
        self._flusher.flush_aside()

    # --- removal

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start forward; False if that changes nothing. Raises OffsetOutOfRangeError above the high watermark."""
        return self._removals.maybe_increment_log_start_offset(offset)

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset` (-1: to the high watermark), and return the new log start (KIP-107).

        The next retention check deletes the segments below it. Raises OffsetOutOfRangeError for any other negative offset and for
        an offset above the high watermark, InvalidArgumentError for a topic with cleanup.policy=compact only.
        """
        self._removals.delete_records(offset)
        return self.log_start_offset

    def delete_old_segments(self, limit: int | None = None) -> int:
        """Delete the segments whose retention has ended, at most `limit`, and return their number. Raises LogOfflineError."""
        return self._removals.delete_old_segments(limit)

    def producers_at(self, offset: int) -> Generator[None, None, ProducerStateManager | None]:
        """Return the producer state after a truncation to `offset`, for `truncate_to`. Nothing is changed.

        Each step reads some of the batches since the last snapshot. If the log changes meanwhile, the result must not be used.
        Raises CorruptBatchError, StorageError.
        """
        return self._removals.producers_at(offset)

    def truncate_to(self, target_offset: int, known: ProducerStateManager | None = None) -> bool:
        """Truncate the log to `target_offset`, which must be the start of a batch. Return False if the log ends at or below it.

        `known` is the result of `producers_at` for this offset; without it all batches since the last snapshot are read here.
        Raises InvalidArgumentError for a negative offset, LogOfflineError.
        """
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        is_cut = self._removals.truncate_to(target_offset, known)
        if is_cut:
            self.events.after_truncation(self)
        return is_cut

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all records and continue at `offset`; the log start is `log_start_offset` or `offset`. Raises
        LogOfflineError.
        """
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        self._removals.truncate_fully_and_start_at(offset, log_start_offset)
        self.events.after_truncation(self)

    def replacing_segments(
        self, new: Iterable[LogSegment], old: Iterable[LogSegment]
    ) -> Generator[Callable[[], object], None, None]:
        """Replace segments with cleaned ones (``….cleaned``): see `segment_replacement`. Raises LogOfflineError.

        Yields functions; the caller must call each of them, on any thread, before it continues.
        """
        coming = list(new)
        yield from self._removals.replacing_segments(coming, old)
        for segment in coming:
            self.events.segment_finished(self, segment)

    def delete_producer_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Rename the snapshots at the bases of removed segments, and delete them later. Raises StorageError."""
        self._removals.delete_producer_snapshots(segments)

    # --- producers

    def remove_expired_producers(self) -> None:
        """Drop the producers without activity for producer.id.expiration.ms; the scheduler calls this every ten minutes."""
        self._expire(self.producer_state.remove_expired_producers(self.clock.now_ms()))

    # --- the end

    def rename_dir(self, directory: Path) -> None:
        """Rename the partition's folder to `directory`, and update all paths. Works for an offline log, too, before its deletion.

        Raises LogOfflineError, StorageError.
        """
        with contextlib.nullcontext() if self.is_offline else self.writing("rename the folder"):
            if not self.is_offline:
                self.metadata_file.maybe_flush()
            self.local.rename_dir(directory)
            for part in (self.producer_state, self.leader_epochs, self.metadata_file):
                part.update_parent_dir(directory)

    def close(self) -> None:
        """Write what a clean start needs (topic id, producer snapshot, last index entries) and close the files.

        Files of an offline log are closed unchanged. Idempotent. Raises LogOfflineError if the disk fails.
        """
        self._expiration.cancel()
        if self.local.is_closed:
            return
        if self.is_offline:
            self.local.close_handlers()
            return
        try:
            with self.writing("close"):
                self.metadata_file.maybe_flush()
                self.leader_epochs.flush()
                self.producer_state.take_snapshot()
                self.local.close()
        except TidelogError:
            self.local.close_handlers()
            raise

    def close_handlers(self) -> None:
        """Close the descriptors without changing the files, because the disk has failed or the folder will be removed."""
        self._expiration.cancel()
        self.local.close_handlers()

    def delete(self) -> None:
        """Remove the log and its folder, at once. Raises StorageError."""
        self._expiration.cancel()
        self.local.delete_all()
        self.leader_epochs.clear()

    # --- settings

    def update_config(self, config: LogConfig) -> None:
        """Apply a new configuration; existing segments keep their index interval. Raises LogOfflineError."""
        self.local.config = config
        if config.magic < 2 and not self.leader_epochs.is_empty:
            with self.writing("clear the leader epochs"):
                self.leader_epochs.clear_soon()
        warn_of_wide_limits(config, self.directory.parent, self.topic_partition.topic)

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Set the topic's id, which is written with the next append. Raises InconsistentTopicIdError."""
        self.metadata_file.record(topic_id)
