"""Removes records from a log: at its start (DeleteRecords, retention), at its end (truncation), within it (compaction; spec §5.6,
§8).

| `truncate_to(target)`, for a follower whose leader has different records | removes |
|---|---|
| target ≥ log end | only an epoch that begins there |
| target < the first segment's base | everything; the log restarts at the target |
| otherwise | the batch with the target and all later batches, with their snapshots and epochs; may lower the log start |

Afterwards the producer state is rebuilt for the remaining records, from the last snapshot at or below the target and the later
batches. `retention` decides which segments are old. Each `PartitionLog` has a `Removals`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, StorageError
from tidelog.storage.loading.producer_rebuild import rebuild_producer_state, state_at
from tidelog.storage.partition import retention
from tidelog.storage.partition.availability import Availability
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.watermarks import Watermarks
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

RECORD_BATCH_MAGIC = 2

HIGH_WATERMARK = -1
"""The offset that makes `delete_records` delete up to the current high watermark."""


class Removals:
    """Removes records from one log. `roll` begins a new segment in that log."""

    def __init__(
        self,
        local: LocalLog,
        watermarks: Watermarks,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        availability: Availability,
        clock: Clock,
        scheduler: Scheduler,
        roll: Callable[[], object],
    ) -> None:
        self._local = local
        self._watermarks = watermarks
        self._producer_state = producer_state
        self._leader_epochs = leader_epochs
        self._availability = availability
        self._clock = clock
        self._scheduler = scheduler
        self._roll = roll

    # --- at the start

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """See `PartitionLog.maybe_increment_log_start_offset`."""
        with self._availability.writing("move the log start"):
            high_watermark = self._watermarks.high_watermark
            if offset > high_watermark:
                raise OffsetOutOfRangeError(
                    "the log start would be above the high watermark",
                    path=self._local.directory,
                    found=offset,
                    expected=f"at most {high_watermark}",
                )
            return self._increment_log_start_offset(offset)

    def delete_records(self, offset: int) -> None:
        """See `PartitionLog.delete_records`."""
        if not self._local.config.is_deleted:
            raise InvalidArgumentError(
                "records cannot be deleted from a topic that is only compacted",
                path=self._local.directory,
                found=self._local.config.cleanup_policy,
            )
        wanted = self._watermarks.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRangeError("the offset to delete up to is negative", path=self._local.directory, found=offset)
        self.maybe_increment_log_start_offset(wanted)

    def delete_old_segments(self, limit: int | None) -> int:
        """See `PartitionLog.delete_old_segments`."""
        local = self._local
        with self._availability.writing("delete old segments"):
            going = retention.due_segments(
                local.segments.values(),
                local.config,
                now_ms=self._clock.now_ms(),
                high_watermark=self._watermarks.high_watermark,
                log_start_offset=self._watermarks.log_start_offset,
                log_end_offset=local.log_end_offset,
                limit=limit,
            )
            for segment, reason in going:
                logger.info("%s: deleting segment %d (%s)", local.directory, segment.base_offset, reason.value)
            if going:
                self._delete_first([segment for segment, _ in going])
            return len(going)

    def _delete_first(self, going: Sequence[LogSegment]) -> None:
        """Delete the first segments of a log; at least one remains to append to."""
        segments = self._local.segments
        if len(going) == len(segments):
            self._roll()
        following = segments.higher(going[-1].base_offset)
        assert following is not None
        self._increment_log_start_offset(following.base_offset)
        self._local.remove_and_delete_segments(going)
        self.delete_producer_snapshots(going)

    def _increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start forward to `offset`. Return False if it is at `offset` or above. The caller has checked the
        offset.
        """
        marks = self._watermarks
        if offset <= marks.log_start_offset:
            return False
        marks.set_log_start_offset(offset)
        self._leader_epochs.truncate_from_start(offset)
        self._producer_state.on_log_start_offset_incremented(offset)
        marks.update_first_unstable_offset()
        return True

    # --- at the end

    def producers_at(self, offset: int) -> Generator[None, None, ProducerStateManager | None]:
        """See `PartitionLog.producers_at`."""
        state, local = self._producer_state, self._local
        if local.config.magic < RECORD_BATCH_MAGIC or not self._watermarks.log_start_offset < offset < local.log_end_offset:
            return None
        return (yield from state_at(state, local.segments, self._watermarks.log_start_offset, offset, self._clock.now_ms()))

    def truncate_to(self, target_offset: int, known: ProducerStateManager | None = None) -> bool:
        """See `PartitionLog.truncate_to`."""
        local, marks = self._local, self._watermarks
        if target_offset < 0:
            raise InvalidArgumentError("the offset to truncate to is negative", path=local.directory, found=target_offset)
        with self._availability.writing("truncate"):
            if target_offset >= local.log_end_offset:
                # At the log end, the leader may have a different epoch than the one stored here.
                self._leader_epochs.truncate_from_end(local.log_end_offset)
                return False
            first = local.segments.first
            if first is not None and first.base_offset > target_offset:
                self.truncate_fully_and_start_at(target_offset)
                return True
            logger.info("%s: truncated from %d to %d", local.directory, local.log_end_offset, target_offset)
            self.delete_producer_snapshots(local.truncate_to(target_offset))
            self._leader_epochs.truncate_from_end(target_offset)
            marks.log_start_offset = min(marks.log_start_offset, target_offset)
            self._rebuild_producers(target_offset, known)
            marks.on_log_end_moved()
            marks.update_first_unstable_offset()
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """See `PartitionLog.truncate_fully_and_start_at`."""
        local, marks = self._local, self._watermarks
        if offset < 0:
            raise InvalidArgumentError("the offset to start at is negative", path=local.directory, found=offset)
        with self._availability.writing("truncate"):
            logger.info("%s: removing all records; the log continues at offset %d", local.directory, offset)
            local.truncate_fully_and_start_at(offset)
            self._leader_epochs.clear_soon()
            self._producer_state.truncate_fully_and_start_at(offset)
            marks.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._rebuild_producers(offset)
            marks.update_high_watermark(local.log_end_offset_metadata)
            marks.update_first_unstable_offset()

    def _rebuild_producers(self, end_offset: int, known: ProducerStateManager | None = None) -> None:
        rebuild_producer_state(
            self._producer_state,
            self._local.segments,
            self._watermarks.log_start_offset,
            end_offset,
            magic=self._local.config.magic,
            now_ms=self._clock.now_ms(),
            known=known,
        )

    # --- in the middle

    def replacing_segments(
        self, new: Iterable[LogSegment], old: Iterable[LogSegment]
    ) -> Generator[Callable[[], object], None, None]:
        """See `PartitionLog.replacing_segments`."""
        with self._availability.writing("replace segments"):
            self.delete_producer_snapshots((yield from self._local.replacing_segments(new, old)))

    def delete_producer_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Rename the snapshots at the bases of removed segments, and delete them later. Raises StorageError."""
        renamed = [self._producer_state.remove_and_mark_snapshot_for_deletion(segment.base_offset) for segment in segments]
        going = [path for path in renamed if path is not None]
        if going:
            delay_ms = self._local.config.file_delete_delay_ms
            self._scheduler.schedule("delete-producer-snapshot", lambda: Rest(partial(_remove_all, going)), delay_ms=delay_ms)


def _remove_all(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove a snapshot: {error.strerror}", path=path) from error
