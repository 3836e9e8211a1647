"""Background compaction: one log after the other, in slices (spec §15; Kafka's LogCleaner).

The cleaner runs one pass after the other, each over the log with the largest dirty share, until no log needs compaction. Then it
checks all logs again every log.cleaner.backoff.ms. If the scheduler's owner has threads, one of them reads, maps, filters and
writes, and waits for the disk. All other work runs on the logs' thread in slices, one in each of the scheduler's ticks.

Checking all logs has a cost, too: with thousands of logs it exceeds the cost of a small pass. Therefore the logs found by one
check are compacted in order, and each is checked once more before its pass. All logs are checked again when the passes since the
last check have cost `WORK_PER_LOOK` times as much as that check, or when all logs that it found have been compacted. With few
logs that is after each pass, as in Kafka.

The check also deletes old segments of compacted logs (with compact,delete, and segments below the log start), because no pass may
run during such a deletion.

| a pass ends with | then |
|---|---|
| success | the checkpoint moves |
| a segment that had to be split | the pass restarts at once |
| damage (CorruptDataError, or any unexpected error) | the log is no longer compacted, with a warning |
| a disk error | the log is unchanged, and its compaction is retried in five minutes |
| `CleanerManager.abort_cleaning` | the unfinished segment is removed |
| `abandon` | the files stay as they are, as after a crash |

Each `log_manager` has a `LogCleaner`. Not thread-safe.
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
from tidelog.storage.compaction.cleaner import Cleaner, CleanResult, Steps, in_memory, run
from tidelog.storage.compaction.cleaner_manager import RETRY_AFTER_MS, CleanerManager
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.partition.segment_replacement import ReplacementAbortedError
from tidelog.storage.scheduler import ScheduledTask, Scheduler

logger = logging.getLogger("tidelog.storage")

DEFAULT_BACKOFF_MS = 15_000
DEFAULT_SLICE_BYTES = 1024 * 1024
"""Bytes that one tick reads and writes. This takes a few milliseconds, during which a broker's clients wait."""

LOOK_BYTES = 8 * 1024
"""The cost of checking one log, given as the number of bytes that a pass processes in the same time."""
LOGS_A_STEP = 16
PASS_BYTES = 512 * 1024
"""The minimum cost of a pass, in bytes. Each pass creates, syncs and renames files."""
WORK_PER_LOOK = 4

SEGMENTS_AT_ONCE = 4
"""How many old segments one step deletes."""


class LogCleaner:
    """Compacts the logs that `manager` chooses. `last_stats` has the statistics of the last finished pass."""

    def __init__(self, manager: CleanerManager, cleaner: Cleaner, *, slice_bytes: int = DEFAULT_SLICE_BYTES) -> None:
        self.manager = manager
        self.last_stats: CleanerStats | None = None
        self._cleaner = cleaner
        self._slice_bytes = slice_bytes
        self._current: LogToClean | None = None
        """The log of the current pass; None between passes."""
        self._steps: Steps[CleanResult | None] | Steps[LogToClean | None] | None = None
        """The steps of the current pass, or of the current choice if no pass is running."""
        self._found: list[TopicPartition] = []
        """Logs found by the last check that have not been compacted since, the dirtiest last."""
        self._looked_at = 0
        self._worked_bytes: float = inf
        """The cost of the work since the last check of all logs."""
        self._is_waiting = False
        """Whether the steps are waiting for another thread."""
        self._error: BaseException | None = None
        self._scheduler: Scheduler | None = None
        self._periodic: ScheduledTask | None = None
        self._next: ScheduledTask | None = None

    # --- in the background

    def start(self, scheduler: Scheduler, *, backoff_ms: int = DEFAULT_BACKOFF_MS) -> None:
        """Schedule a check now and every `backoff_ms`. As in Kafka, log.initial.task.delay.ms does not delay the first check."""
        self._scheduler = scheduler
        self._periodic = scheduler.schedule("log-cleaner", self._tick, period_ms=backoff_ms)

    def reconfigure(self, backoff_ms: int, memory_bytes: int) -> None:
        """Use a new interval between checks, after the next check, and new memory for the keys, with the next pass."""
        if self._periodic is not None:
            self._periodic.period_ms = backoff_ms
        self._cleaner.memory_bytes = memory_bytes

    def shutdown(self) -> None:
        """Abort the current pass, and start no other pass."""
        for task in (self._periodic, self._next):
            if task is not None:
                task.cancel()
        self._periodic = self._next = self._scheduler = None
        if self._current is not None:
            self.manager.abort_cleaning(self._current.topic_partition)
        self._steps, self._is_waiting = None, False

    def abandon(self) -> None:
        """End the current pass as if the process had been killed: its files are left as they are. Start no other pass."""
        steps, self._steps, self._current, self._scheduler = self._steps, None, None, None
        self._is_waiting = False
        if steps is not None:
            steps.close()

    def went_offline(self, key: TopicPartition) -> None:
        """Abort the pass over a log that has met a disk error."""
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
        """Finish the current pass, or run a new one. Return False if no log needs compaction.

        Use it if the owner has no threads.
        """
        if self._current is None and not self._begin(self.manager.grab_filthiest_compacted_log()):
            return False
        while self._current is not None:
            self._go_on(self._slice_bytes)
        return True

    def work(self, max_bytes: int) -> bool:
        """Read and write about `max_bytes`. Old segments are deleted before a pass. Return False if no work is left."""
        if self._steps is None:
            self._steps = self._choosing()
        return self._go_on(max_bytes)

    def delete_old_segments(self) -> int:
        """Delete the segments of compacted logs whose retention has expired, and return their number."""
        return sum(run(self._deleting(key)) for key in self.manager.compacted())

    # --- choosing

    def _choosing(self) -> Steps[LogToClean | None]:
        """Choose the log to compact now, and mark it as in progress. The steps return None if no log needs compaction."""
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
        """Delete a log's old segments. The steps return the number of deleted segments."""
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
            logger.error("%s: cannot delete old segments: %s", logs[0].directory, error)
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
        """Run steps until `max_bytes` are processed, a step needs another thread, or a pass ends. Return False if no log needs
        compaction.
        """
        done = 0
        scheduler = self._scheduler
        self._cleaner.has_threads = scheduler is not None and scheduler.elsewhere is not None
        while done < max_bytes and not (scheduler is not None and done and scheduler.is_over):
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
                if self._steps is steps:  # Otherwise the log has gone offline, which has already aborted the pass.
                    self._fail(failure)
                return True
            else:
                if isinstance(step, int):
                    done += step
                elif scheduler is not None and scheduler.elsewhere is not None:
                    self._is_waiting = True
                    scheduler.aside(step, partial(self._waited, steps))
                    return True
                else:
                    try:
                        step()
                    except Exception as raised:
                        self._error = raised
        return True

    def _waited(self, steps: object, result: object) -> None:
        """Continue after another thread's work: with the pass, or with the next one if that pass was aborted meanwhile."""
        self._is_waiting = False
        if self._steps is steps:
            self._error = result if isinstance(result, BaseException) else None
        self._go_on_later()

    def _fail(self, error: Exception) -> None:
        if self._current is None:
            self._steps = None
            raise error
        key, log = self._current.topic_partition, self._current.log
        self._abort()
        if isinstance(error, StorageError):
            logger.error("%s: compaction has failed and will be retried later: %s", log.directory, error)
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
        self._worked_bytes += stats.work_bytes
        self.manager.done_cleaning(key, result.end_offset)
        logger.info(
            "%s: compacted up to offset %d: kept %d of %d records and %d of %d bytes",
            log.directory,
            result.end_offset,
            stats.messages_written,
            stats.messages_read,
            stats.bytes_written,
            stats.bytes_read,
        )

    def _abort(self) -> None:
        """Abort the current pass, and remove its unfinished segment."""
        steps, self._steps, self._current = self._steps, None, None
        self._error = None
        # No other pass begins while a thread still works for this one.
        # A running generator has raised the error that aborts it.
        if steps is not None and getgeneratorstate(steps) != GEN_RUNNING:
            with suppress(ReplacementAbortedError, StorageError):  # After a StorageError the log is offline, which was logged.
                steps.throw(ReplacementAbortedError())
