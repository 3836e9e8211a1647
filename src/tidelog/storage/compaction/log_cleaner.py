"""Compaction in the background: log after log, a slice at a time (spec §15; Kafka's LogCleaner).

One pass follows the other, always over the log with the largest dirty share, until no log needs compaction. Then it looks again
every log.cleaner.backoff.ms. Where the scheduler's owner has threads, one of them reads, maps and filters, and waits for the
disk. What is left for the thread that owns the logs is done in slices, one in each of the scheduler's ticks.

A look at every log costs, too: with thousands of them more than a small pass. The logs that a look has found are compacted in
that order, each looked at once more before, and the next look is taken when the passes since have cost `WORK_PER_LOOK` times as
much, or none is left. With few logs that is after each pass, as in Kafka. A look also deletes the old segments of compacted logs
(compact,delete; and those below the log start), because a pass must not meet that.

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
from math import inf

from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaner import Cleaner, CleanerStats, CleanResult, Steps, in_memory, run
from tidelog.storage.compaction.cleaner_manager import RETRY_AFTER_MS, CleanerManager
from tidelog.storage.scheduler import ScheduledTask, Scheduler

logger = logging.getLogger("tidelog.storage")

DEFAULT_BACKOFF_MS = 15_000
DEFAULT_SLICE_BYTES = 1024 * 1024
"""Read and written in one tick: some milliseconds, for which a broker's clients wait."""

LOOK_BYTES = 8 * 1024
"""What a look at one log counts: as much time as a pass takes for so many bytes."""
LOGS_A_STEP = 16
PASS_BYTES = 512 * 1024
"""What a pass counts at least: files are created, synced and renamed."""
WORK_PER_LOOK = 4

SEGMENTS_AT_ONCE = 4
"""So many old segments are deleted in one step."""


class LogCleaner:
    """Works off what `manager` chooses. `last_stats` are those of the last pass that came to its end."""

    def __init__(self, manager: CleanerManager, cleaner: Cleaner, *, slice_bytes: int = DEFAULT_SLICE_BYTES) -> None:
        self.manager = manager
        self.last_stats: CleanerStats | None = None
        self._cleaner = cleaner
        self._slice_bytes = slice_bytes
        self._current: LogToClean | None = None
        """The log of the pass under way."""
        self._steps: Steps[CleanResult | None] | Steps[LogToClean | None] | None = None
        """Those of that pass; without one, of the choice that is under way."""
        self._found: list[TopicPartition] = []
        """What the last look has found and was not compacted since, the dirtiest last."""
        self._looked_at = 0
        self._worked_bytes: float = inf
        """Since the last look at all logs."""
        self._is_waiting = False
        """Whether the steps continue after something that is done on another thread."""
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
        self._steps, self._is_waiting = None, False

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
        if self._current is None and not self._begin(self.manager.grab_filthiest_compacted_log()):
            return False
        while self._current is not None:
            self._go_on(self._slice_bytes)
        return True

    def work(self, max_bytes: int) -> bool:
        """Read and write about `max_bytes`; before a pass old segments are deleted. False if nothing is left to do."""
        if self._steps is None:
            self._steps = self._choosing()
        return self._go_on(max_bytes)

    def delete_old_segments(self) -> int:
        """Delete the segments of compacted logs whose retention has ended; return how many."""
        return sum(run(self._deleting(key)) for key in self.manager.compacted())

    # --- choosing

    def _choosing(self) -> Steps[LogToClean | None]:
        """Come to the log to compact now, marked as in progress; None if none needs it."""
        manager = self.manager
        if self._worked_bytes >= WORK_PER_LOOK * LOOK_BYTES * self._looked_at:
            self._found = []
        while True:
            while self._found:
                key = self._found.pop()
                chosen = yield from in_memory(partial(manager.grab, key))
                if chosen is not None:
                    return chosen
            found = []
            keys = manager.compacted()
            for number, key in enumerate(keys, 1):
                yield from self._deleting(key)
                looked_at = yield from in_memory(partial(manager.look, key))
                if looked_at is not None:
                    found.append((looked_at.cleanable_ratio, key))
                if not number % LOGS_A_STEP:
                    yield LOGS_A_STEP * LOOK_BYTES
            self._looked_at, self._worked_bytes = len(keys), 0
            self._found = [key for _, key in sorted(found)]
            if not found:
                return None

    def _deleting(self, key: TopicPartition) -> Steps[int]:
        """Delete a log's old segments; come to how many."""
        deleted = 0
        while True:
            now = yield from in_memory(partial(self._delete_some, key))
            deleted += now
            if now < SEGMENTS_AT_ONCE:
                return deleted
            yield PASS_BYTES

    def _delete_some(self, key: TopicPartition) -> int:
        logs = self.manager.deletable_logs([key])
        try:
            return sum(log.delete_old_segments(SEGMENTS_AT_ONCE) for log in logs)
        except StorageError as error:
            logger.error("%s: old segments were not deleted: %s", logs[0].directory, error)
            return 0
        finally:
            self.manager.done_deleting(log.topic_partition for log in logs)

    # --- one pass

    def _begin(self, chosen: LogToClean | None) -> bool:
        self._steps = None
        if chosen is None:
            return False
        self._current = chosen
        self._steps = self._cleaner.steps(chosen)
        self._worked_bytes += PASS_BYTES
        self.manager.on_abort(chosen.topic_partition, self._abort)
        return True

    def _go_on(self, max_bytes: int) -> bool:
        """Do steps until they come to `max_bytes`, to work for another thread, or to a pass's end; False if no log needs one."""
        done = 0
        while done < max_bytes:
            if self._current is not None and self._current.log.is_offline:
                key = self._current.topic_partition
                self._abort()
                self.manager.give_up_cleaning(key)
                return True
            steps = self._steps
            assert steps is not None
            error, self._error = self._error, None
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                if self._current is not None:
                    self._end(end.value)
                    return True
                if not self._begin(end.value):
                    return False
            except Exception as failure:
                if self._steps is steps:  # Else the log has gone offline, which has ended the pass.
                    self._fail(failure)
                return True
            else:
                if isinstance(step, int):
                    done += step
                    self._worked_bytes += step
                elif self._scheduler is not None and self._scheduler.elsewhere is not None:
                    self._is_waiting = True
                    self._scheduler.aside(step, partial(self._waited, steps))
                    return True
                else:
                    try:
                        step()
                    except Exception as raised:
                        self._error = raised
        return True

    def _waited(self, steps: object, result: object) -> None:
        """Go on after something that was done on another thread, unless the pass was ended meanwhile."""
        if self._steps is steps:
            self._is_waiting = False
            self._error = result if isinstance(result, BaseException) else None
            self._go_on_later()

    def _fail(self, error: Exception) -> None:
        if self._current is None:
            self._steps = None
            raise error
        key, log = self._current.topic_partition, self._current.log
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
