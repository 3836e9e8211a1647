"""What is to be done later, on the injected clock: delayed deletions, retention, flushes, checkpoints, compaction.

There is no thread in here. The owner of the log calls `tick` from time to time, a broker from its event loop and a test after
it moved its clock, and what is due runs then, in order of time. A task that raises does not stop the others: its error goes to
the log, a periodic one comes again.

A task may have a part that only makes it short: forcing a file to the disk before the log does, which takes seconds for a full
segment. An owner with threads hands `tick` a way to do such parts `elsewhere`; the task itself then runs on the owner's thread,
as always, and finds little left to do. The other way round, a task may return a `Rest`, what is left to do without anything that
belongs to a thread: writing a file, mostly. Without threads all of it is done at once.

An owner with threads that others wait for also sets `Scheduler.elsewhere`. Then `aside` does what waits for a disk there at once,
and a tick ends after `SLICE_S`: what is left comes with the next one. Tasks that work through many things look at `is_over`; what
continues after work that went aside has a slice of its own. An owner without threads may have a tick end so, too (`is_slice`).

An owner that sleeps between two ticks sets `Scheduler.wake`, which is called when a task is due before all others that wait.
Without it, work that comes back from another thread and schedules its next step would wait until the owner looks by itself.

The clock may be set back, as real ones are. What waits then continues waiting for the rest of its time only, and not until the
clock is where it was: the scheduler counts how far the clock has moved forward, and leaves the steps back out.
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
"""Calls the first on another thread, and then the second, with what came of that, on the thread that ticks."""


FEW = 1000
"""So many tasks that were cancelled may wait for their time, or as many as others wait."""


def _nothing() -> None:
    """What is left of a task that was cancelled."""


SLICE_S = 0.004
"""So long one tick works where others wait for its thread."""


class Rest:
    """What a task leaves to be done, on any thread."""

    def __init__(self, work: Task) -> None:
        self.work = work


class ScheduledTask:
    """A task that waits for its time; `period_ms` of a periodic one. `due_ms` is the scheduler's time, see there."""

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
        """Forget the task, and what it holds; nothing happens if it has run already."""
        self.is_cancelled = True
        self._task, self.ahead = _nothing, None

    def run(self, elsewhere: Elsewhere | None = None) -> None:
        """Do it now. Errors are logged: the same one of a periodic task once, until it has worked again."""
        if self._is_unfinished:
            return  # The rest of the last time is still being done.
        try:
            rest = self._task()
            if isinstance(rest, Rest):
                if elsewhere is not None:
                    self._is_unfinished = True
                    try:
                        elsewhere(rest.work, self._finish)
                    except RuntimeError:  # The program ends, and has no threads any more.
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
    """Tasks by the time they are due. One thread at a time may call `tick`; several may schedule.

    Its own time is the clock's as long as that is never set back, and never goes back itself.
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
        """What does things on other threads; set by an owner that has some, and whose thread others wait for."""
        self.wake: Task = _nothing
        """Called, on the thread that schedules, when `next_due_ms` has come nearer."""
        self._slice_ends = inf

    def schedule(
        self, name: str, task: Task, *, delay_ms: int = 0, period_ms: int | None = None, ahead: Task | None = None
    ) -> ScheduledTask:
        """Have `task` run `delay_ms` from now, and then every `period_ms` if that is given. Raises InvalidArgumentError.

        `ahead` makes a task that runs once short, see the module; it touches nothing that belongs to a thread, and what fails
        there fails again in the task.
        """
        if delay_ms < 0 or (period_ms is not None and period_ms <= 0):
            raise InvalidArgumentError(
                "a task's time", found=f"delay {delay_ms}, period {period_ms}", expected="0 or more, above 0"
            )
        scheduled = ScheduledTask(name, task, self._time() + delay_ms, period_ms, ahead)
        self._push(scheduled)
        return scheduled

    def tick(self, elsewhere: Elsewhere | None = None, *, is_slice: bool = False) -> int:
        """Run what is due at the clock's time, each task once at most; return how many ran. A slice leaves the rest to the next.

        Without `elsewhere` nothing is left open: tasks that an earlier tick has sent there are run here, too.
        """
        if elsewhere is None:
            self._finish_elsewhere()
        now_ms = self._time()
        last = next(self._order)  # What a task schedules, or is due again, is not for this tick: it stands behind what is.
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
            if interrupted is not None:  # No task is lost.
                self._push(interrupted)
        return ran

    @property
    def is_over(self) -> bool:
        """Whether a task that is running should leave the rest of its work to a further task."""
        return monotonic() >= self._slice_ends

    def in_slices(self, name: str, steps: Iterator[None]) -> None:
        """Take steps until the tick's slice is over; those that are left come with the next ticks."""
        for _ in steps:
            if self.is_over:
                self.schedule(name, partial(self.in_slices, name, steps))
                return

    def aside(self, work: Task, done: Callable[[object], None]) -> None:
        """Call `work` on another thread, where the owner has one, then `done` with what it returned or raised, on the owner's.

        There `done` has a slice, and schedules what it leaves when that `is_over`. Without threads both are called now. What
        `done` raises is the caller's bug.
        """
        if self.elsewhere is not None:
            try:
                self.elsewhere(work, partial(self._in_a_slice, done))
                return
            except RuntimeError:  # The program ends, and has no threads any more.
                self.elsewhere = None
        result: object
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)

    def _in_a_slice(self, done: Callable[[object], None], result: object) -> None:
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
        """When the next task is due (epoch ms, as the clock goes now), None with nothing to do."""
        if len(self._waiting) > self._tidy_at:
            self._tidy()
        while self._waiting and self._waiting[0][2].is_cancelled:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] - self._time() + self._clock_ms if self._waiting else None

    def shutdown(self, at_most_s: float = inf) -> None:
        """Run the one-time tasks that still wait, due or not, and forget all others.

        After `at_most_s` those that have a part `ahead` are forgotten, too: removals, which the next start does.
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
            logger.info("%d removals of files are left to the next start", left)

    def _time(self) -> int:
        with self._guard:
            clock_ms = self._clock.now_ms()
            self._now_ms += max(0, clock_ms - self._clock_ms)
            self._clock_ms = clock_ms
            return self._now_ms

    def _push(self, scheduled: ScheduledTask) -> None:
        with self._guard:
            heapq.heappush(self._waiting, (scheduled.due_ms, next(self._order), scheduled))
            is_next = self._waiting[0][2] is scheduled
        if is_next:
            self.wake()

    def _tidy(self) -> None:
        """Throw away what was cancelled. On the thread that ticks; others may schedule meanwhile."""
        with self._guard:
            self._waiting = [entry for entry in self._waiting if not entry[2].is_cancelled]
            heapq.heapify(self._waiting)
            self._tidy_at = 2 * len(self._waiting) + FEW
