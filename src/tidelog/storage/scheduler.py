"""What is to be done later, on the injected clock: delayed deletions, retention, flushes, checkpoints, compaction.

There is no thread in here. Whoever owns the log calls `tick` from time to time, a broker from its event loop and a test after
it moved its clock, and what is due runs then, in order of time. A task that raises does not stop the others: its error goes to
the log, a periodic one comes again.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError

logger = logging.getLogger("tidelog.storage")

Task = Callable[[], object]


class ScheduledTask:
    """A task that waits for its time (`due_ms`, epoch ms); `period_ms` of a periodic one."""

    def __init__(self, name: str, task: Task, due_ms: int, period_ms: int | None) -> None:
        self.name = name
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.is_cancelled = False
        self._task = task

    def cancel(self) -> None:
        """Forget the task; nothing happens if it has run already."""
        self.is_cancelled = True

    def run(self) -> None:
        """Do it now. Errors are told on the log."""
        try:
            self._task()
        except Exception:
            logger.exception("background task %s failed", self.name)


class Scheduler:
    """Tasks by the time they are due. One thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[int, int, ScheduledTask]] = []
        self._order = itertools.count()

    def schedule(self, name: str, task: Task, *, delay_ms: int = 0, period_ms: int | None = None) -> ScheduledTask:
        """Have `task` run `delay_ms` from now, and then every `period_ms` if that is given. Raises InvalidArgumentError."""
        if delay_ms < 0 or (period_ms is not None and period_ms <= 0):
            raise InvalidArgumentError(
                "a task's time", found=f"delay {delay_ms}, period {period_ms}", expected="0 or more, above 0"
            )
        scheduled = ScheduledTask(name, task, self._clock.now_ms() + delay_ms, period_ms)
        self._push(scheduled)
        return scheduled

    def tick(self) -> int:
        """Run what is due at the clock's time, each task once at most; return how many ran."""
        now_ms = self._clock.now_ms()
        due = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            due.append(heapq.heappop(self._waiting)[2])
        ran = 0
        for scheduled in due:
            if scheduled.is_cancelled:
                continue
            scheduled.run()
            ran += 1
            if scheduled.period_ms is not None and not scheduled.is_cancelled:
                scheduled.due_ms = now_ms + scheduled.period_ms
                self._push(scheduled)
        return ran

    @property
    def next_due_ms(self) -> int | None:
        """When the next task is due (epoch ms), None with nothing to do."""
        while self._waiting and self._waiting[0][2].is_cancelled:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def shutdown(self) -> None:
        """Run the one-time tasks that still wait, due or not (they are deletions and flushes), and forget all others."""
        waiting, self._waiting = sorted(self._waiting, key=lambda entry: entry[:2]), []
        for _, _, scheduled in waiting:
            if scheduled.period_ms is None and not scheduled.is_cancelled:
                scheduled.run()

    def _push(self, scheduled: ScheduledTask) -> None:
        heapq.heappush(self._waiting, (scheduled.due_ms, next(self._order), scheduled))
