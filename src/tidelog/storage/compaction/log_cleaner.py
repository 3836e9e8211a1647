"""Compaction in the background: log after log, a slice at a time (spec §15; Kafka's LogCleaner).

Every log.cleaner.backoff.ms it looks for a log that needs compaction. A pass over a large log takes long, and the thread that
owns the logs has other things to do: so a pass is worked off in slices of some megabytes, one in each of the scheduler's
ticks, until no log needs compaction. What waits for a disk in between, and what takes long as batches are compressed, is done by
another thread where the scheduler's owner has one, and the pass continues after it. Old segments of compacted logs
(compact,delete; and those below the log start) are deleted here as well, because a pass must not meet that.

| a pass ends with | then |
|---|---|
| its end | the checkpoint moves |
| a segment that had to be split | it starts over at once |
| damage (CorruptDataError and what else is unexpected) | the log is no longer compacted, with a warning |
| an error of the disk | the log is as it was, and is tried again in five minutes |
| `CleanerManager.abort_cleaning` | nothing; what was being written is removed |

`log_manager` owns one. One thread at a time.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate

from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaner import Cleaner, CleanerStats, CleanResult, Processing, Steps
from tidelog.storage.compaction.cleaner_manager import RETRY_AFTER_MS, CleanerManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import ScheduledTask, Scheduler

logger = logging.getLogger("tidelog.storage")

DEFAULT_BACKOFF_MS = 15_000
DEFAULT_SLICE_BYTES = 1024 * 1024
"""Read and written in one tick: some milliseconds, for which a broker's clients wait."""


class LogCleaner:
    """Works off what `manager` chooses. `last_stats` are those of the last pass that came to its end."""

    def __init__(self, manager: CleanerManager, cleaner: Cleaner, *, slice_bytes: int = DEFAULT_SLICE_BYTES) -> None:
        self.manager = manager
        self.last_stats: CleanerStats | None = None
        self._cleaner = cleaner
        self._slice_bytes = slice_bytes
        self._current: LogToClean | None = None
        self._steps: Steps[CleanResult | None] | None = None
        self._is_waiting = False
        """Whether the pass continues after something that is done on another thread."""
        self._error: BaseException | None = None
        self._scheduler: Scheduler | None = None
        self._periodic: ScheduledTask | None = None
        self._next: ScheduledTask | None = None

    # --- in the background

    def start(self, scheduler: Scheduler, *, backoff_ms: int = DEFAULT_BACKOFF_MS, initial_delay_ms: int = 0) -> None:
        """Have the scheduler look for work every `backoff_ms`, from `initial_delay_ms` on."""
        self._scheduler = scheduler
        self._periodic = scheduler.schedule("log-cleaner", self._tick, delay_ms=initial_delay_ms, period_ms=backoff_ms)

    def reconfigure(self, backoff_ms: int, memory_bytes: int) -> None:
        """Look for work every `backoff_ms` after the next look; the next pass has `memory_bytes` for its keys."""
        if self._periodic is not None:
            self._periodic.period_ms = backoff_ms
        self._cleaner.memory_bytes = memory_bytes

    def shutdown(self) -> None:
        """End the pass that is under way, and look for none any more."""
        for task in (self._periodic, self._next):
            if task is not None:
                task.cancel()
        self._periodic = self._next = self._scheduler = None
        if self._current is not None:
            self.manager.abort_cleaning(self._current.topic_partition)

    def went_offline(self, key: TopicPartition) -> None:
        """End the pass that is under way with a log that has met an error of the disk."""
        if self._current is not None and self._current.topic_partition == key:
            self.manager.abort_cleaning(key)

    def _tick(self) -> None:
        if not self._is_waiting and (self._next is None or self._next.is_cancelled):
            self._slice()

    def _slice(self) -> None:
        self._next = None
        if self.work(self._slice_bytes) and not self._is_waiting:
            self._go_on_later()

    def _go_on_later(self) -> None:
        if self._scheduler is not None:
            self._next = self._scheduler.schedule("log-cleaner-slice", self._slice)

    # --- by hand

    def clean_filthiest_log(self) -> bool:
        """Go on with the pass under way, or begin one, and bring it to its end; False if no log needs compaction.

        For an owner without threads.
        """
        if not self._begin():
            return False
        while self._steps is not None:
            self._go_on(self._slice_bytes)
        return True

    def work(self, max_bytes: int) -> bool:
        """Read and write about `max_bytes`; between two passes old segments are deleted. False if nothing is left to do."""
        if self._current is None:
            self.delete_old_segments()
            if not self._begin():
                return False
        self._go_on(max_bytes)
        return True

    def delete_old_segments(self) -> int:
        """Delete the segments of compacted logs whose retention has ended; return how many."""
        deleted = 0
        logs = self.manager.deletable_logs()
        try:
            for log in logs:
                try:
                    deleted += log.delete_old_segments()
                except StorageError as error:
                    logger.error("%s: old segments were not deleted: %s", log.directory, error)
        finally:
            self.manager.done_deleting(log.topic_partition for log in logs)
        return deleted

    # --- one pass

    def _begin(self) -> bool:
        if self._current is not None:
            return True
        chosen = self.manager.grab_filthiest_compacted_log()
        if chosen is None:
            return False
        self._current = chosen
        self._steps = self._cleaner.steps(chosen)
        self.manager.on_abort(chosen.topic_partition, self._abort)
        return True

    def _go_on(self, max_bytes: int) -> None:
        """Do steps of the pass under way until they come to `max_bytes`, or to its end."""
        assert self._current is not None
        assert self._steps is not None
        key, log, steps = self._current.topic_partition, self._current.log, self._steps
        if log.is_offline:
            self._abort()
            self.manager.give_up_cleaning(key)
            return
        error, self._error = self._error, None
        done = 0
        try:
            while done < max_bytes:
                step = next(steps) if error is None else steps.throw(error)
                error = None
                if isinstance(step, int):
                    done += step
                elif self._scheduler is not None and self._scheduler.elsewhere is not None:
                    self._is_waiting = True
                    self._scheduler.aside(step, partial(self._waited, steps, isinstance(step, Processing)))
                    return
                else:
                    try:
                        step()
                    except Exception as raised:
                        error = raised
        except StopIteration as end:
            self._end(end.value)
        except Exception as failure:
            if self._steps is steps:  # Else the log has gone offline, which has ended the pass.
                self._fail(key, log, failure)

    def _waited(self, steps: Steps[CleanResult | None], was_long: bool, result: object) -> None:
        """Go on after something that was done on another thread, unless the pass was ended meanwhile.

        After long work at once: others had the owner's thread meanwhile.
        """
        if self._steps is steps:
            self._is_waiting = False
            self._error = result if isinstance(result, BaseException) else None
            if was_long:
                self._go_on(self._slice_bytes)
            if not self._is_waiting:
                self._go_on_later()

    def _fail(self, key: TopicPartition, log: PartitionLog, error: Exception) -> None:
        self._abort()
        if isinstance(error, StorageError):
            logger.error("%s: compaction is tried again later: %s", log.directory, error)
            self.manager.give_up_cleaning(key, retry_after_ms=RETRY_AFTER_MS)
        else:
            self.manager.give_up_cleaning(key)
            self.manager.mark_partition_uncleanable(key, str(error) or repr(error))

    def _end(self, result: CleanResult | None) -> None:
        assert self._current is not None
        key, log = self._current.topic_partition, self._current.log
        self._current = self._steps = None
        if result is None:
            self.manager.give_up_cleaning(key)
            return
        self.last_stats = stats = result.stats
        self.manager.done_cleaning(key, result.end_offset)
        logger.info(
            "%s: compacted up to offset %d: %d of %d records and %d of %d bytes stay",
            log.directory,
            result.end_offset,
            stats.messages_written,
            stats.messages_read,
            stats.bytes_written,
            stats.bytes_read,
        )

    def _abort(self) -> None:
        """End the pass under way; what it was writing is removed."""
        steps, self._steps, self._current = self._steps, None, None
        self._is_waiting, self._error = False, None
        # One that runs has met the error that ends it.
        if steps is not None and getgeneratorstate(steps) != GEN_RUNNING:
            with suppress(StorageError):  # The log has gone offline then, and has said so.
                steps.close()
