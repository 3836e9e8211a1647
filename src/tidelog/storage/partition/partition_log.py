"""One partition's log, written and kept: everything that a broker, a loader or a tool asks of it (spec §5, §8, §13, §14).

| part | owns |
|---|---|
| `local` | segments, log end, recovery point; where reads find their bytes |
| `watermarks` | log start, high watermark, last stable offset |
| `producer_state` | producers and their snapshots |
| `leader_epochs` | epochs and their checkpoint |
| `metadata_file` | the topic's id |
| `availability` | whether it may be written, or is offline |
| `flusher` | what is forced to the disk, and when |
| `appends` | the steps of an append |
| `removals` | what leaves the log: retention, DeleteRecords, truncation, compaction |

`offset_lookup` finds offsets by time. The parts get what they need of each other; none knows the log.

Invariants
    * What an append returned for is in the log, at the offsets that it told; nothing of a refused append is.
    * Offsets grow; log start ≤ last stable offset ≤ high watermark ≤ log end.
    * After an I/O error nothing more is written (LogOfflineError, with the reason); what is there is still read.

Made by `loader.load`. One thread at a time: nothing here locks, nothing runs by itself; what is to happen later waits in the
scheduler for its owner's tick.
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
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import FetchData, LogSegment, LogSlice
from tidelog.storage.segment.log_segments import LogSegments

PRODUCER_EXPIRATION_CHECK_MS = 600_000


class PartitionLog:
    """One partition's log: append, read, look up, truncate, flush, retention. `segments` holds at least the active one."""

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
        self._availability = Availability(self.local, lambda: self.events.went_offline(self))
        self._flusher = LogFlusher(self.local, leader_epochs, self.metadata_file, self._availability, scheduler)
        parts = self.local, self.watermarks, producer_state, leader_epochs
        self._appends = Appends(*parts, self.metadata_file, self._availability, self._flusher, clock, self.roll)
        self._removals = Removals(*parts, self._availability, clock, scheduler, self.roll)
        self._expire = partial(scheduler.in_slices, "producer-expiration")
        check_ms = PRODUCER_EXPIRATION_CHECK_MS
        check = self.remove_expired_producers
        self._expiration = scheduler.schedule("producer-expiration", check, delay_ms=check_ms, period_ms=check_ms)
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
    def recovery_point(self) -> int:
        """Up to here, exclusive, everything is on the disk."""
        return self.local.recovery_point

    # --- offline

    @property
    def offline_reason(self) -> str | None:
        """Why the log is offline; None if it is not."""
        return self._availability.offline_reason

    @property
    def is_offline(self) -> bool:
        """Whether an I/O error has ended writing."""
        return self._availability.is_offline

    def go_offline(self, what: str, error: BaseException) -> LogOfflineError:
        """Take the log offline because of `error` and return what is to be raised; the first reason stays."""
        return self._availability.go_offline(what, error)

    def writing(self, what: str) -> contextlib.AbstractContextManager[None]:
        """See `Availability.writing`."""
        return self._availability.writing(what)

    # --- appending

    def append_as_leader(
        self,
        records: Bytes,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_hurried: bool = False,
        prepared: Prepared | None = None,
    ) -> AppendInfo:
        """Give the records offsets and timestamps, and append them, see `Appends.as_leader`."""
        return self._appends.as_leader(records, leader_epoch, origin, is_hurried, prepared)

    def prepare_append(
        self, records: Bytes, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Callable[[], Prepared]:
        """Return the part of an append that unpacks, checks and converts records, see `Appends.prepare`."""
        return self._appends.prepare(records, leader_epoch, origin)

    def append_as_follower(self, records: Bytes, leader_epoch: int | None = None) -> AppendInfo:
        """Append batches as they come from the leader of `leader_epoch`, see `Appends.as_follower`."""
        return self._appends.as_follower(records, leader_epoch)

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a leader's epoch begins at an offset, as it does when it becomes the leader. Raises LogOfflineError."""
        if self.config.magic >= 2:
            with self.writing("store a leader epoch"):
                self.leader_epochs.assign(leader_epoch, start_offset)

    def note_leader_epoch_soon(self, leader_epoch: int, start_offset: int) -> None:
        """Do the same at once in memory, and soon in the file: a crash loses an epoch without records, which is over then."""
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
        """Return up to `max_length` bytes from the batch that holds `start_offset`, or the next one, on.

        With `min_one_message` the first batch comes whole, whatever its size. With TXN_COMMITTED the aborted transactions come
        along. Raises OffsetOutOfRangeError below the log start and above the log end, CorruptDataError, StorageError.
        """
        return self.locate(start_offset, max_length, isolation, min_one_message).load()

    def locate(self, start_offset: int, max_length: int, isolation: FetchIsolation, min_one_message: bool) -> LogSlice:
        """Return where the bytes are that `read` gives, for callers that send them without a look. Raises the same."""
        watermarks = self.watermarks
        if start_offset < watermarks.log_start_offset:
            raise OffsetOutOfRangeError(
                "an offset below the log start",
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
        """Return (epoch, end offset) of the last epoch at or below `leader_epoch`, None if that is unknown (spec §14)."""
        found = self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found[0] == UNDEFINED_EPOCH else found

    # --- watermarks

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        """Set the high watermark, within the log; return what it became."""
        return self.watermarks.update_high_watermark(offset)

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
        self.scheduler.schedule("flush-log", lambda: self._flusher.flush_rolled(segment.base_offset, snapshot))
        if finished.size_bytes:
            self.events.segment_finished(self, finished)
        return segment

    @property
    def is_flush_awaited(self) -> bool:
        """Whether a flush is under way that appends have asked for: who wrote is answered after it, see `when_flushed`."""
        return self._flusher.is_awaited

    def when_flushed(self, callback: Flushed) -> None:
        """Have `callback` called once what the log holds now is on the disk, at once if it is; with whether that failed."""
        self._flusher.when_flushed(callback)

    def flush(self, *, force_active: bool = False, up_to: int | None = None) -> None:
        """Force the log to the disk, see `LogFlusher.flush`. Raises LogOfflineError."""
        self._flusher.flush(force_active=force_active, up_to=up_to)

    def flush_aside(self) -> None:
        """Have it forced to the disk, on another thread where there is one. Raises LogOfflineError, StorageError."""
        self._flusher.flush_aside()

    # --- removing

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start forward; False if it is there already. Raises OffsetOutOfRangeError above the high watermark."""
        return self._removals.maybe_increment_log_start_offset(offset)

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset`, or at the high watermark (-1); return where it begins then (KIP-107).

        The segments below go with the next retention check. Raises OffsetOutOfRangeError for any other negative offset and above
        the high watermark, InvalidArgumentError for a topic that is compacted only, whose records are not the log's to delete.
        """
        self._removals.delete_records(offset)
        return self.log_start_offset

    def delete_old_segments(self, limit: int | None = None) -> int:
        """Delete the segments whose retention has ended, `limit` at most; return how many. Raises LogOfflineError."""
        return self._removals.delete_old_segments(limit)

    def producers_at(self, offset: int) -> Generator[None, None, ProducerStateManager | None]:
        """Return what producers there will be once the log is cut at `offset`, for `truncate_to`; nothing is changed.

        It reads the batches since the last snapshot, some at each step. Where the log has changed meanwhile it is of no use.
        Raises CorruptBatchError, StorageError.
        """
        return self._removals.producers_at(offset)

    def truncate_to(self, target_offset: int, known: ProducerStateManager | None = None) -> bool:
        """Cut the log so that it ends at `target_offset`, at a batch's start; False if it ends there or before already.

        `known` is what `producers_at` has found for this offset; without it all batches since the last snapshot are read here.

        Raises InvalidArgumentError for a negative offset, LogOfflineError.
        """
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        is_cut = self._removals.truncate_to(target_offset, known)
        if is_cut:
            self.events.after_truncation(self)
        return is_cut

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and continue at `offset`; the log start is that, or `log_start_offset`. Raises LogOfflineError."""
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        self._removals.truncate_fully_and_start_at(offset, log_start_offset)
        self.events.after_truncation(self)

    def replacing_segments(
        self, new: Iterable[LogSegment], old: Iterable[LogSegment]
    ) -> Generator[Callable[[], object], None, None]:
        """Put cleaned segments (``….cleaned``) in the place of others, see `segment_replacement`. Raises LogOfflineError.

        Yields what is to be called before it continues, on any thread.
        """
        coming = list(new)
        yield from self._removals.replacing_segments(coming, old)
        for segment in coming:
            self.events.segment_finished(self, segment)

    def delete_producer_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Rename the snapshots at the bases of segments that are gone, and remove them later. Raises StorageError."""
        self._removals.delete_producer_snapshots(segments)

    # --- producers

    def remove_expired_producers(self) -> None:
        """Forget the producers that had no word for producer.id.expiration.ms; the scheduler calls this every ten minutes."""
        self._expire(self.producer_state.remove_expired_producers(self.clock.now_ms()))

    # --- the end

    def rename_dir(self, directory: Path) -> None:
        """Rename the partition's folder to `directory` and follow it; an offline log's as well, which may be on its way out.

        Raises LogOfflineError, StorageError.
        """
        with contextlib.nullcontext() if self.is_offline else self.writing("rename the folder"):
            if not self.is_offline:
                self.metadata_file.maybe_flush()
            self.local.rename_dir(directory)
            for part in (self.producer_state, self.leader_epochs, self.metadata_file):
                part.update_parent_dir(directory)

    def close(self) -> None:
        """Write what a clean start needs (topic id, producers' snapshot, last index entries) and close the files.

        Of a log that is offline, files are closed as they are. Idempotent. Raises LogOfflineError where the disk refuses.
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
        """Give the descriptors back and leave the files as they are: the disk has failed, or the folder is to be removed."""
        self._expiration.cancel()
        self.local.close_handlers()

    def delete(self) -> None:
        """Remove the log and its folder, at once. Raises StorageError."""
        self._expiration.cancel()
        self.local.delete_all()
        self.leader_epochs.clear()

    # --- settings

    def update_config(self, config: LogConfig) -> None:
        """Take over a new configuration; segments that are there keep their index interval. Raises LogOfflineError."""
        self.local.config = config
        if config.magic < 2 and not self.leader_epochs.is_empty:
            with self.writing("clear the leader epochs"):
                self.leader_epochs.clear_soon()
        warn_of_wide_limits(config, self.directory.parent, self.topic_partition.topic)

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Note the topic's id; it is written with the next append. Raises InconsistentTopicIdError."""
        self.metadata_file.record(topic_id)
