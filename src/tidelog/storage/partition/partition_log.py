"""One partition's log, written and kept: everything that a broker, a loader or a tool asks of it (spec §5, §8, §13, §14).

| concern | is in |
|---|---|
| parts, rolling, flushing, going offline | `log_state` (the base class) |
| appends | `appending` |
| reads | `local_log`, up to what `watermarks` allow |
| truncation | `truncation` |
| retention, the log start | `retention` |
| offsets by time | `offset_lookup` |

Invariants
    * What an append returned for is in the log, at the offsets that it told; nothing of a refused append is.
    * Offsets grow; log start ≤ last stable offset ≤ high watermark ≤ log end.
    * After an I/O error nothing is written any more (LogOfflineError, with the reason); what is there is still read.

Made by `loader.load`. One thread at a time: nothing here locks, nothing runs by itself; what is to happen later waits in the
scheduler for its owner's tick.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, StorageError, TidelogError
from tidelog.formats.leader_epochs import UNDEFINED_EPOCH
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.compression import Bytes
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition import offset_lookup, retention, truncation
from tidelog.storage.partition.append_info import AppendInfo
from tidelog.storage.partition.appends import Appends, Prepared
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.log_state import LogState
from tidelog.storage.partition.offset_metadata import LoadedLogOffsets, LogOffsetMetadata
from tidelog.storage.partition.segment_replacement import at_once
from tidelog.storage.partition.watermarks import FetchIsolation, LogOffsetSnapshot
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.segment import FetchData, LogSegment, LogSlice, TimestampAndOffset
from tidelog.storage.segment.segments import LogSegments

HIGH_WATERMARK = -1
"""`delete_records` up to the high watermark, whatever it is."""

PRODUCER_EXPIRATION_CHECK_MS = 600_000


class PartitionLog(LogState):
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
        super().__init__(
            directory,
            config,
            clock,
            scheduler,
            segments=segments,
            producer_state=producer_state,
            leader_epochs=leader_epochs,
            offsets=offsets,
            topic_id=topic_id,
            jitter=jitter,
        )
        self._appends = Appends(self)
        self._expiration = scheduler.schedule(
            "producer-expiration",
            self.remove_expired_producers,
            delay_ms=PRODUCER_EXPIRATION_CHECK_MS,
            period_ms=PRODUCER_EXPIRATION_CHECK_MS,
        )

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
        """Give the records offsets and timestamps, and append them. A writable buffer is changed in place where that will do.

        Bytes of a partial batch at the end are left out; without a whole batch nothing happens. Raises CorruptBatchError,
        RecordValidationError (InvalidTimestampError) with the records at fault, InvalidRecordError, RecordTooLargeError,
        RecordBatchTooLargeError, UnsupportedForMessageFormatError, UnsupportedCompressionTypeError, a ProducerError; then nothing
        was appended. LogOfflineError where the disk refuses, from then on.
        """
        return self._appends.as_leader(records, leader_epoch, origin, is_hurried, prepared)

    def prepare_append(
        self, records: Bytes, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Callable[[], Prepared]:
        """Return the part of an append that unpacks, checks and converts records, to be called on any thread.

        For an owner that serves many: with `is_hurried`, an append that takes more than some milliseconds before it is written
        raises TooMuchAtOnceError, and comes back with what this has `prepared`. `records` stay unchanged by others meanwhile.
        What is returned raises what `append_as_leader` raises for the records.
        """
        return self._appends.prepare(records, leader_epoch, origin)

    def append_as_follower(self, records: Bytes, leader_epoch: int | None = None) -> AppendInfo:
        """Append batches as they come from the leader of `leader_epoch`: offsets, epochs, timestamps, bytes stay.

        Batches of a newer epoch, and all after them, are left out (KAFKA-18723); None takes all. Raises CorruptBatchError,
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError below the log end, RecordBatchTooLargeError; LogOfflineError.
        """
        return self._appends.as_follower(records, leader_epoch)

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a leader's epoch begins at an offset, as it does when it becomes the leader. Raises LogOfflineError."""
        if self.config.magic >= 2:
            with self.writing("note a leader epoch"):
                self.leader_epochs.assign(leader_epoch, start_offset)

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
        """Return where the bytes are that `read` gives, for who sends them without a look. Raises the same."""
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

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [start_offset, upper_bound_offset). Raises StorageError."""
        return self.local.collect_aborted_transactions(start_offset, upper_bound_offset)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the answer to ListOffsets for `timestamp` (ms, or a special value), None if no record is that late.

        See `offset_lookup`. Raises UnsupportedForMessageFormatError, UnsupportedVersionError, CorruptDataError, StorageError.
        """
        return offset_lookup.fetch_offset_by_timestamp(self, timestamp)

    def fetch_offset_for_timestamp(self, timestamp: int, isolation: FetchIsolation) -> TimestampAndOffset | None:
        """The same as a consumer sees it: None for a record at or after where its reads end; LATEST is that end."""
        return offset_lookup.fetch_offset_for_timestamp(self, timestamp, isolation)

    def legacy_fetch_offsets_before(self, timestamp: int, max_offsets: int) -> list[int]:
        """Return ListOffsets v0's answer: bases of segments by their files' times, newest first (spec §13.4)."""
        return offset_lookup.legacy_fetch_offsets_before(self, timestamp, max_offsets)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of the last epoch at or below `leader_epoch`, None if that is not known (spec §14)."""
        found = self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found[0] == UNDEFINED_EPOCH else found

    # --- watermarks

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        """Set the high watermark, within the log; return what it became."""
        return self.watermarks.update_high_watermark(offset)

    def maybe_increment_high_watermark(self, offset: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Move the high watermark forward, as a leader; return the old one, None if it stays. See `watermarks`."""
        return self.watermarks.maybe_increment_high_watermark(offset)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Take over the leader's high watermark, as a follower; return it within the log, None if it stays."""
        return self.watermarks.maybe_update_high_watermark(offset)

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """Return the last stable offset with its place."""
        return self.watermarks.fetch_last_stable_offset_metadata()

    def fetch_offset_snapshot(self) -> LogOffsetSnapshot:
        """Return log start, log end, high watermark and last stable offset, with their places."""
        return self.watermarks.fetch_offset_snapshot()

    # --- removing

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start forward; False if it is there already. Raises OffsetOutOfRangeError above the high watermark."""
        with self.writing("move the log start"):
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    "a log start above the high watermark",
                    path=self.directory,
                    found=offset,
                    expected=f"at most {self.high_watermark}",
                )
            return retention.increment_log_start_offset(self, offset)

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset`, or at the high watermark (-1); return where it begins then (KIP-107).

        The segments below go with the next retention check. Raises OffsetOutOfRangeError for any other negative offset and above
        the high watermark, InvalidArgumentError for a topic that is compacted only, whose records are not the log's to delete.
        """
        if not self.config.is_deleted:
            raise InvalidArgumentError(
                "records of a topic that is compacted only are not deleted", path=self.directory, found=self.config.cleanup_policy
            )
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRangeError("a negative offset to delete to", path=self.directory, found=offset)
        self.maybe_increment_log_start_offset(wanted)
        return self.log_start_offset

    def delete_old_segments(self, limit: int | None = None) -> int:
        """Delete the segments that retention lets go, `limit` at most; return how many. Raises LogOfflineError."""
        return retention.delete_old_segments(self, limit)

    def truncate_to(self, target_offset: int) -> bool:
        """Cut the log so that it ends at `target_offset`, at a batch's start; False if it ends there or before already.

        Raises InvalidArgumentError for a negative offset, LogOfflineError.
        """
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        is_cut = truncation.truncate_to(self, target_offset)
        if is_cut:
            self.events.after_truncation(self)
        return is_cut

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and go on at `offset`; the log start becomes that, or `log_start_offset`. Raises LogOfflineError."""
        self._appends.append_time.forget()
        self.events.before_truncation(self)
        truncation.truncate_fully_and_start_at(self, offset, log_start_offset)
        self.events.after_truncation(self)

    def replace_segments(self, new: Iterable[LogSegment], old: Iterable[LogSegment]) -> None:
        """Put cleaned segments (``….cleaned``) in the place of others, see `segment_replacement`. Raises LogOfflineError."""
        at_once(self.replacing_segments(new, old))

    def replacing_segments(
        self, new: Iterable[LogSegment], old: Iterable[LogSegment]
    ) -> Generator[Callable[[], object], None, None]:
        """The same in steps: yields what is to be called before it goes on, on any thread."""
        coming = list(new)
        with self.writing("replace segments"):
            self.delete_producer_snapshots((yield from self.local.replacing_segments(coming, old)))
        for segment in coming:
            self.events.segment_finished(self, segment)

    # --- producers

    def remove_expired_producers(self) -> None:
        """Forget the producers that had no word for producer.id.expiration.ms; the scheduler calls this every ten minutes."""
        self.producer_state.remove_expired_producers(self.clock.now_ms())

    # --- the end

    def rename_dir(self, directory: Path) -> None:
        """Rename the partition's folder to `directory` and follow it; an offline log's as well, which may be on its way out.

        Raises LogOfflineError, StorageError.
        """
        if self.is_offline:
            self._rename_dir(directory)
            return
        with self.writing("rename the folder"):
            self.metadata_file.maybe_flush()
            self._rename_dir(directory)

    def _rename_dir(self, directory: Path) -> None:
        self.local.rename_dir(directory)
        self.producer_state.update_parent_dir(directory)
        self.leader_epochs.update_parent_dir(directory)
        self.metadata_file.update_parent_dir(directory)

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
                active = self.segments.active
                if active.size_bytes:
                    # Indexes are made when they are needed; a start after a clean end misses them.
                    active.offset_index.create_if_missing()
                    active.time_index.create_if_missing()
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
        try:
            for path in self.directory.iterdir():
                path.unlink()
            with contextlib.suppress(FileNotFoundError):
                self.directory.rmdir()
        except OSError as error:
            raise StorageError(f"cannot remove a partition's folder: {error.strerror}", path=self.directory) from error
