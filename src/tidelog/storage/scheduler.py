"""Scheduled tasks on the injected clock: delayed deletions, retention, flushes, checkpoints, compaction.

The scheduler has no thread. The owner of the log calls `tick`: a broker from its event loop, a test after moving its clock. A
tick runs the tasks that are due, in order of time. A task that raises does not stop the others: its error is logged, and a
periodic task runs again.

A task may have a preparation that makes the task itself short. For example, flushing a full segment takes seconds. An owner with
threads passes `tick` a function that runs preparations `elsewhere`. The task itself still runs on the owner's thread,
and finds little left to do. A task may also return a `Rest`: work that any thread may do afterwards, usually writing a file.
Without threads all of this is done at once.

An owner whose thread must stay responsive also sets `Scheduler.elsewhere`. Then `aside` immediately runs disk work on another
thread, and a tick ends after `SLICE_S`; the next one does the rest. Long tasks check `is_over`. The code that continues after
`aside` has a separate slice. An owner without threads may limit a tick in the same way (`is_slice`).

An owner that sleeps between ticks sets `Scheduler.wake`, which is called when a new task is due before all others. Otherwise work
that returns from another thread and schedules its next step would wait until the owner's next tick.

The clock may be set back, as real clocks are. A task then waits only for the rest of its delay, and not until the clock reaches
its old time: the scheduler adds up the clock's forward movements and ignores steps back.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from time import monotonic

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError, TidelogError

logger = logging.getLogger("tidelog.storage")

Task = Callable[[], object]

Elsewhere = Callable[[Task, Callable[[object], None]], None]
"""Runs the first function on another thread, then calls the second one on the ticking thread with the result or exception."""


FEW = 1000
"""Cancelled tasks are removed once there are this many more of them than other tasks."""


def _nothing() -> None:
    """Stands in for the function of a cancelled task."""


SLICE_S = 0.004
"""How long one tick runs, in seconds, if others wait for its thread."""


class Rest:
    """The rest of a task's work, which any thread may do."""

    def __init__(self, work: Task) -> None:
        self.work = work


class ScheduledTask:
    """A scheduled task; `period_ms` is None for a one-time task. `due_ms` is in the scheduler's time, see `Scheduler`."""

    __slots__ = ("_is_unfinished", "_last_error", "_task", "ahead", "due_ms", "is_cancelled", "name", "period_ms")

    def __init__(self, name: str, task: Task, due_ms: int, period_ms: int | None, ahead: Task | None = None) -> None:
        self.name = name
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.ahead = ahead
        self.is_cancelled = False
        self._task = task
        self._last_error = ""
        self._is_unfinished = False

    def cancel(self) -> None:
        """Cancel the task and drop its function. Do nothing if it has already run."""
        self.is_cancelled = True
        self._task, self.ahead = _nothing, None

    def run(self, elsewhere: Elsewhere | None = None) -> None:
        """Run the task now, and log its errors. A repeated error of a periodic task is logged once, until the task succeeds
        again.
        """
        if self._is_unfinished:
            return  # The rest of the last run is still in progress.
        try:
            rest = self._task()
            if isinstance(rest, Rest):
                if elsewhere is not None:
                    self._is_unfinished = True
                    try:
                        elsewhere(rest.work, self._finish)
                    except RuntimeError:  # The program is ending and has no threads any more.
                        self._is_unfinished = False
                    else:
                        return
                rest.work()
        except Exception as error:
            self._log_failure(error)
        else:
            self._last_error = ""

    def _finish(self, result: object) -> None:
        self._is_unfinished = False
        if isinstance(result, Exception):
            self._log_failure(result)
        else:
            self._last_error = ""

    def _log_failure(self, error: Exception) -> None:
        if not isinstance(error, TidelogError):
            logger.error("background task %s failed", self.name, exc_info=error)
            return
        text = str(error)
        if text != self._last_error:
            logger.error("background task %s failed: %s", self.name, text)
        self._last_error = text


class Scheduler:
    """Runs tasks in the order of their due times. Only one thread at a time may call `tick`; any thread may schedule.

    The scheduler's time follows the clock, but never decreases.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clock_ms = self._now_ms = clock.now_ms()
        self._waiting: list[tuple[int, int, ScheduledTask]] = []
        self._tidy_at = FEW
        self._elsewhere: dict[ScheduledTask, None] = {}
        self._order = itertools.count()
        self._guard = threading.Lock()
        self.elsewhere: Elsewhere | None = None
        """Runs work on other threads. An owner with threads whose own thread must stay responsive sets it."""
        self.wake: Task = _nothing
        """Called on the scheduling thread when `next_due_ms` has become earlier."""
        self._slice_ends = inf
        self._is_abandoned = False

    def schedule(
        self, name: str, task: Task, *, delay_ms: int = 0, period_ms: int | None = None, ahead: Task | None = None
    ) -> ScheduledTask:
        """Run `task` after `delay_ms`, and then every `period_ms` if that is given. Raise InvalidArgumentError for negative
        times.

        `ahead` prepares a one-time task on another thread: see the module's docstring. It must not touch state that belongs to a
        thread. Its errors are ignored, because the task raises them again.
        """
        if delay_ms < 0 or (period_ms is not None and period_ms <= 0):
            raise InvalidArgumentError(
                "a task's time", found=f"delay {delay_ms}, period {period_ms}", expected="a delay of 0 or more, a period above 0"
            )
        scheduled = ScheduledTask(name, task, self._time() + delay_ms, period_ms, ahead)
        self._push(scheduled)
        return scheduled

    def tick(self, elsewhere: Elsewhere | None = None, *, is_slice: bool = False) -> int:
        """Run the tasks that are due, each at most once; return how many ran. With `is_slice`, the next tick does the rest.

        Without `elsewhere` this also runs the tasks whose preparation an earlier tick has sent to another thread.
        """
        if elsewhere is None:
            self._finish_elsewhere()
        now_ms = self._time()
        last = next(self._order)  # Tasks scheduled during this tick have higher numbers and must wait for the next one.
        ran = 0
        if elsewhere is not None or is_slice:
            self._slice_ends = monotonic() + SLICE_S
        interrupted: ScheduledTask | None = None
        try:
            while self._waiting and self._waiting[0][0] <= now_ms and self._waiting[0][1] < last:
                if ran and self.is_over:
                    break
                scheduled = interrupted = heapq.heappop(self._waiting)[2]
                if not scheduled.is_cancelled:
                    if scheduled.ahead is not None and elsewhere is not None:
                        self._run_ahead(scheduled, scheduled.ahead, elsewhere)
                    else:
                        scheduled.run(elsewhere)
                    ran += 1
                interrupted = None
                if scheduled.period_ms is not None and not scheduled.is_cancelled:
                    scheduled.due_ms = now_ms + scheduled.period_ms
                    self._push(scheduled)
        finally:
            self._slice_ends = inf
            if interrupted is not None:  # Do not lose the task.
                self._push(interrupted)
        return ran

    @property
    def is_over(self) -> bool:
        """Whether a running task should leave the rest of its work to another task."""
        return monotonic() >= self._slice_ends

    def in_slices(self, name: str, steps: Iterator[None]) -> None:
        """Run steps until the tick's slice is over; the next ticks run the rest."""
        for _ in steps:
            if self.is_over:
                self.schedule(name, partial(self.in_slices, name, steps))
                return

    def aside(self, work: Task, done: Callable[[object], None]) -> None:
        """Run `work` on another thread, if there is one, then call `done` on the owner's thread with the result or exception.

        `done` has a slice: when the slice `is_over`, it must schedule the rest of its work. Without threads both functions are
        called now. `done` must not raise.
        """
        if self._is_abandoned:
            return
        if self.elsewhere is not None:
            try:
                self.elsewhere(work, partial(self._in_a_slice, done))
                return
            except RuntimeError:  # The program is ending and has no threads any more.
                self.elsewhere = None
        result: object
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)

    def _in_a_slice(self, done: Callable[[object], None], result: object) -> None:
        if self._is_abandoned:
            return
        before, self._slice_ends = self._slice_ends, min(self._slice_ends, monotonic() + SLICE_S)
        try:
            done(result)
        finally:
            self._slice_ends = before

    def _run_ahead(self, scheduled: ScheduledTask, ahead: Task, elsewhere: Elsewhere) -> None:
        def done(_: object) -> None:
            if self._elsewhere.pop(scheduled, scheduled) is None and not scheduled.is_cancelled:
                scheduled.run()

        self._elsewhere[scheduled] = None
        elsewhere(ahead, partial(self._in_a_slice, done))

    def _finish_elsewhere(self) -> None:
        elsewhere, self._elsewhere = self._elsewhere, {}
        for scheduled in elsewhere:
            if not scheduled.is_cancelled:
                scheduled.run()

    @property
    def next_due_ms(self) -> int | None:
        """When the next task is due (epoch ms by the current clock), None if there is no task."""
        if len(self._waiting) > self._tidy_at:
            self._tidy()
        while self._waiting and self._waiting[0][2].is_cancelled:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] - self._time() + self._clock_ms if self._waiting else None

    def shutdown(self, at_most_s: float = inf) -> None:
        """Run all pending one-time tasks, due or not, and drop all periodic ones.

        After `at_most_s` seconds, tasks with a preparation (`ahead`) are dropped, too: they remove files, and the next start
        removes the rest.
        """
        self._slice_ends = monotonic() + at_most_s
        waiting, self._waiting = sorted(self._waiting, key=lambda entry: entry[:2]), []
        elsewhere, self._elsewhere = self._elsewhere, {}
        left = 0
        for scheduled in (*elsewhere, *(entry[2] for entry in waiting if entry[2].period_ms is None)):
            if scheduled.is_cancelled:
                continue
            if scheduled.ahead is None or not self.is_over:
                scheduled.run()
            else:
                left += 1
        self._slice_ends = inf
        if left:
            logger.info("%d file deletions are postponed until the next start", left)

    def abandon(self) -> None:
        """Drop all tasks, and run nothing more: the files that they would change are no longer the owner's."""
        self._is_abandoned = True
        self._waiting, self._elsewhere = [], {}

    def _time(self) -> int:
        with self._guard:
            clock_ms = self._clock.now_ms()
            self._now_ms += max(0, clock_ms - self._clock_ms)
            self._clock_ms = clock_ms
            return self._now_ms

    def _push(self, scheduled: ScheduledTask) -> None:
        if self._is_abandoned:
            return
        with self._guard:
            heapq.heappush(self._waiting, (scheduled.due_ms, next(self._order), scheduled))
            is_next = self._waiting[0][2] is scheduled
        if is_next:
            self.wake()

    def _tidy(self) -> None:
        """Remove cancelled tasks. Call it on the ticking thread; others may schedule meanwhile."""
        with self._guard:
            self._waiting = [entry for entry in self._waiting if not entry[2].is_cancelled]
            heapq.heapify(self._waiting)
            self._tidy_at = 2 * len(self._waiting) + FEW
