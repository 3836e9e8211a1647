"""Chooses the log to compact next, and locks logs while they are in use (spec §15; Kafka's LogCleanerManager).

| state of a partition | meaning |
|---|---|
| none | the log may be chosen |
| in progress | a pass or a deletion of old segments is running |
| paused n times | other operations use the log: it takes n calls of `resume_cleaning` to release the log |

`TRANSITIONS` has the allowed changes.

The file ``cleaner-offset-checkpoint`` has the offset at which each log's next pass begins. It is a checkpoint file as in spec §7,
written after every pass. A checkpoint outside its log counts as the log start.

If compaction meets damaged data, the log is uncleanable until the next start, because rewriting it could lose records. If a log
could not be written, for example because of a full disk, its compaction is retried five minutes later.

A log can be chosen if its share of dirty bytes exceeds min.cleanable.dirty.ratio, or if a record has waited longer than
max.compaction.lag.ms. Of these logs, the manager chooses the one with the largest share. Invariant: no two operations hold the
same partition. Not thread-safe. `log_cleaner` does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.clock import Clock
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, StorageError
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.non_blocking_read import NotCachedError
from tidelog.model import TopicPartition
from tidelog.storage.compaction.cleanable import LogToClean, cleanable_offsets, max_compaction_delay_ms
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler
from tidelog.transitions import Transitions, checked

logger = logging.getLogger("tidelog.storage")

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

RETRY_AFTER_MS = 300_000
"""How long, in ms, a log is not compacted after a disk error."""


class CleaningState(Enum):
    """The state of a partition whose log may not be chosen."""

    IN_PROGRESS = "in progress"
    PAUSED = "paused"


TRANSITIONS: Final[Transitions[CleaningState | None]] = {
    None: {
        CleaningState.IN_PROGRESS: "the log is chosen for compaction, or for the deletion of old segments",
        CleaningState.PAUSED: "the log is about to be truncated, deleted or renamed, or its old segments deleted",
    },
    CleaningState.IN_PROGRESS: {
        None: "the compaction or deletion is done or was aborted",
        CleaningState.PAUSED: "the log is about to be truncated, deleted or renamed: the compaction is aborted",
    },
    CleaningState.PAUSED: {
        CleaningState.PAUSED: "one more or one less operation holds the pause",
        None: "the last pause is released",
    },
}


class CleanerManager:
    """Manages the logs of the data folder `directory`. `logs` may change between two calls."""

    def __init__(
        self, directory: Path, logs: Mapping[TopicPartition, PartitionLog], clock: Clock, scheduler: Scheduler | None = None
    ) -> None:
        """Another thread writes the checkpoint if `scheduler` has threads; otherwise it is written at once."""
        self._aside = (scheduler or Scheduler(clock)).aside
        self._is_unwritten = False
        self._is_writing = False
        self._path = directory / CLEANER_OFFSET_CHECKPOINT
        self._logs = logs
        self._clock = clock
        self._states: dict[TopicPartition, CleaningState] = {}
        self._pauses: dict[TopicPartition, int] = {}
        self._aborts: dict[TopicPartition, Callable[[], None]] = {}
        """Functions that abort the passes in progress."""
        self._uncleanable: dict[TopicPartition, str] = {}
        self._not_before_ms: dict[TopicPartition, int] = {}
        self._checkpoints = self._read_checkpoints()

    # --- choosing

    def grab_filthiest_compacted_log(self) -> LogToClean | None:
        """Choose the log that needs compaction most, and mark it as in progress. Return None if no log needs compaction."""
        wanted = [one for key in self.compacted() if (one := self.look(key)) is not None]
        if not wanted:
            return None
        filthiest = max(wanted, key=lambda one: one.cleanable_ratio)
        self._move(filthiest.topic_partition, CleaningState.IN_PROGRESS)
        return filthiest

    def compacted(self) -> list[TopicPartition]:
        """Return the partitions of compacted topics."""
        return [key for key, log in self._logs.items() if log.config.is_compacted]

    def look(self, key: TopicPartition) -> LogToClean | None:
        """Return the part of a log that needs compaction now. Return None if there is none, or if the log may not be chosen.

        Raises NotCachedError within `non_blocking` if an index is not in memory.
        """
        log, now_ms = self._logs.get(key), self._clock.now_ms()
        if log is None or not log.config.is_compacted or not self._is_free(key, log, now_ms):
            return None
        found = self._look_at(log, now_ms)
        if found is None or not found.cleanable_bytes:
            return None
        is_wanted = found.needs_compaction_now or found.cleanable_ratio > log.config.min_cleanable_dirty_ratio
        return found if is_wanted else None

    def grab(self, key: TopicPartition) -> LogToClean | None:
        """Examine a log, and mark it as in progress if it needs compaction. Raises what `look` raises."""
        found = self.look(key)
        if found is not None:
            self._move(key, CleaningState.IN_PROGRESS)
        return found

    def _is_free(self, key: TopicPartition, log: PartitionLog, now_ms: int) -> bool:
        return (
            self.state(key) is None
            and key not in self._uncleanable
            and not log.is_offline
            and self._not_before_ms.get(key, now_ms) <= now_ms
        )

    def _look_at(self, log: PartitionLog, now_ms: int) -> LogToClean | None:
        key = log.topic_partition
        try:
            offsets = cleanable_offsets(log, self._checkpoints.get(key), now_ms)
            if offsets.force_update_checkpoint:
                self.update_checkpoint(key, offsets.first_dirty_offset)
            delay_ms = max_compaction_delay_ms(log, offsets.first_dirty_offset, now_ms)
            return LogToClean.of(log, offsets.first_dirty_offset, offsets.first_uncleanable_dirty_offset, delay_ms > 0)
        except NotCachedError:
            raise
        except Exception as error:
            self.mark_partition_uncleanable(key, str(error))
            return None

    def deletable_logs(self, among: Iterable[TopicPartition] | None = None) -> list[PartitionLog]:
        """Return the compacted logs whose old segments the cleaner may delete, and mark them as in progress.

        Logs with the policy `compact` only are included, because they may have segments below the log start. `among` limits the
        choice to these partitions.
        """
        now_ms = self._clock.now_ms()
        logs = [(key, self._logs.get(key)) for key in (self._logs if among is None else among)]
        found = [log for key, log in logs if log is not None and log.config.is_compacted and self._is_free(key, log, now_ms)]
        for log in found:
            self._move(log.topic_partition, CleaningState.IN_PROGRESS)
        return found

    # --- states

    def state(self, key: TopicPartition) -> CleaningState | None:
        """Return a partition's state, or None if it may be chosen."""
        return self._states.get(key)

    def _move(self, key: TopicPartition, state: CleaningState | None) -> None:
        checked(TRANSITIONS, self._states.get(key), state, f"compaction of partition {key.topic}-{key.partition}")
        if state is None:
            del self._states[key]
        else:
            self._states[key] = state

    def on_abort(self, key: TopicPartition, abort: Callable[[], None]) -> None:
        """Store the function that aborts the pass in progress. Raises InvalidArgumentError if no pass is in progress."""
        self._check_in_progress(key)
        self._aborts[key] = abort

    def done_cleaning(self, key: TopicPartition, end_offset: int) -> None:
        """Record that a pass has finished at `end_offset`. Raises InvalidArgumentError if no pass is in progress."""
        self._end(key)
        self.update_checkpoint(key, end_offset)

    def give_up_cleaning(self, key: TopicPartition, *, retry_after_ms: int = 0) -> None:
        """Record that a pass has ended without a result, and do not compact the log for `retry_after_ms`. Raises
        InvalidArgumentError if no pass is in progress.
        """
        self._end(key)
        if retry_after_ms > 0:
            self._not_before_ms[key] = self._clock.now_ms() + retry_after_ms

    def done_deleting(self, keys: Iterable[TopicPartition]) -> None:
        """Record that old segments were deleted. Raises InvalidArgumentError for a partition that is not in progress."""
        for key in keys:
            self._end(key)

    def _end(self, key: TopicPartition) -> None:
        self._check_in_progress(key)
        self._aborts.pop(key, None)
        self._move(key, None)

    def _check_in_progress(self, key: TopicPartition) -> None:
        state = self._states.get(key)
        if state is not CleaningState.IN_PROGRESS:
            raise InvalidArgumentError(
                f"no compaction or deletion is in progress for partition {key.topic}-{key.partition}",
                found="no state" if state is None else state.value,
            )

    def abort_and_pause_cleaning(self, key: TopicPartition) -> None:
        """Abort a partition's pass, if one is in progress, and start no other pass until `resume_cleaning`.

        Call it before a log is truncated, deleted or renamed. Each call must be followed by one call to `resume_cleaning`.
        """
        abort = self._aborts.pop(key, None)
        if abort is not None:
            abort()
        self._pause(key)

    def _pause(self, key: TopicPartition) -> None:
        self._move(key, CleaningState.PAUSED)
        self._pauses[key] = self._pauses.get(key, 0) + 1

    def abort_cleaning(self, key: TopicPartition) -> None:
        """Abort a partition's pass, if one is in progress."""
        self.abort_and_pause_cleaning(key)
        self.resume_cleaning([key])

    def resume_cleaning(self, keys: Iterable[TopicPartition]) -> None:
        """Undo one pause of each partition. Raises InvalidArgumentError for a partition that is not paused."""
        for key in keys:
            count = self._pauses.pop(key, None)
            if count is None:
                raise InvalidArgumentError(f"compaction of partition {key.topic}-{key.partition} is not paused")
            self._move(key, CleaningState.PAUSED if count > 1 else None)
            if count > 1:
                self._pauses[key] = count - 1

    # --- uncleanable ones

    def mark_partition_uncleanable(self, key: TopicPartition, reason: str) -> None:
        """Mark a log as uncleanable."""
        if key not in self._uncleanable:
            self._uncleanable[key] = reason
            logger.warning("%s-%d is no longer compacted: %s", key.topic, key.partition, reason)

    @property
    def uncleanable_partitions(self) -> dict[TopicPartition, str]:
        """The uncleanable partitions, each with the reason. Partitions that no longer exist are dropped."""
        self._uncleanable = {key: reason for key, reason in self._uncleanable.items() if key in self._logs}
        return dict(self._uncleanable)

    # --- the checkpoint

    @property
    def checkpoints(self) -> dict[TopicPartition, int]:
        """The offset at which each log's next pass begins."""
        return dict(self._checkpoints)

    def update_checkpoint(self, key: TopicPartition, offset: int) -> None:
        """Set a log's checkpoint, and drop the checkpoints of logs that no longer exist. A failure to write the file is
        logged.
        """
        self._checkpoints[key] = offset
        self._checkpoints_changed()

    def remove_checkpoint(self, key: TopicPartition) -> None:
        """Drop the checkpoint of a deleted log."""
        self._uncleanable.pop(key, None)
        self._not_before_ms.pop(key, None)
        if self._checkpoints.pop(key, None) is not None:
            self._checkpoints_changed()

    def maybe_truncate_checkpoint(self, key: TopicPartition, offset: int) -> None:
        """Lower a log's checkpoint to `offset`, after the log was truncated there."""
        if self._checkpoints.get(key, 0) > offset:
            self.update_checkpoint(key, offset)

    def _read_checkpoints(self) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._path)
        except (CorruptCheckpointError, StorageError) as error:
            logger.warning("%s: cannot read the checkpoints, so all logs are compacted from their start: %s", self._path, error)
            return {}

    def _checkpoints_changed(self) -> None:
        # The checkpoint takes effect in memory at once: if the file stays old, the next start only repeats some work.
        self._is_unwritten = True
        self._write()

    def _write(self) -> None:
        if self._is_unwritten and not self._is_writing:
            self._is_unwritten, self._is_writing = False, True
            self._checkpoints = {key: offset for key, offset in self._checkpoints.items() if key in self._logs}
            self._aside(partial(write_offset_checkpoint, self._path, dict(self._checkpoints)), self._written)

    def _written(self, result: object) -> None:
        self._is_writing = False
        if isinstance(result, BaseException):
            logger.error("%s: cannot write the checkpoints: %s", self._path, result)
        self._write()

    def finish(self) -> None:
        """Write the checkpoint if another thread has not written it yet. Call it after the owner's threads have ended."""
        self._is_unwritten |= self._is_writing
        self._is_writing = False
        self._write()
