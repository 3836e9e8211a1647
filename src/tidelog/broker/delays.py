"""Delayed work for clients: sessions that end, rebalances that waited long enough, transactions that time out.

They go by the injected clock, so that a test moves it and sees a session end. The machine's clock may be set, and no session ends
by that: there, time is the monotonic one (`tidelog.clock.steady`). Nothing in here is kept over a broker's end.

Not for a client's own waiting, as a fetch's: that is real time, whatever the log's clock says (`node.timers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.clock import Clock, SteadyClock, steady
from tidelog.storage.scheduler import ScheduledTask, Scheduler

if TYPE_CHECKING:
    from tidelog.broker.timers import Timer, Timers

Delay = ScheduledTask
"""A call that waits for its time; `cancel` forgets it."""


class Delays:
    """Timers of the broker, for its clients. Belongs to the loop's thread."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = steady(clock)
        self._scheduler = Scheduler(self._clock)
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._is_stopped = False

    def now_ms(self) -> int:
        """Return the time by which delays go. Of use for differences only: it may be the time since the machine started."""
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], object], name: str = "delay") -> Delay:
        """Have `callback` called once, `delay_ms` from now or a little later; `name` is for the log, should it fail."""
        delay = self._scheduler.schedule(name, callback, delay_ms=max(delay_ms, 0))
        self._arm()
        return delay

    def call_at_last(self, delay_ms: int, callback: Callable[[], object], name: str = "delay") -> Timer:
        """The same, but no later than so many real milliseconds from now, even where the clock is moved by hand and stands still.

        For waits that only make a start smoother.
        """
        if isinstance(self._clock, SteadyClock):
            return self.call_later(delay_ms, callback, name)
        return _Either(self, self._timers, delay_ms, callback, name)

    def every(self, period_ms: int, callback: Callable[[], object], name: str) -> Delay:
        """Have `callback` called each `period_ms`, for the first time one period from now."""
        delay = self._scheduler.schedule(name, callback, delay_ms=period_ms, period_ms=period_ms)
        self._arm()
        return delay

    def tick(self) -> int:
        """Do what is due; return how many calls that were. Happens by itself, but for a clock that is moved by hand."""
        return self._tick(is_slice=False)

    def stop(self) -> None:
        """Forget all of it."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due_ms = self._scheduler.next_due_ms
        if due_ms is None or self._is_stopped:
            return
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms
        # A millisecond more: a timer that comes a little early would find nothing to do.
        self._timer = self._timers.call_later(max(due_ms - self._clock.now_ms(), 0) + 1, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if not self._is_stopped:
            self._tick(is_slice=True)

    def _tick(self, *, is_slice: bool) -> int:
        """Do what is due, or as much of it as others can wait for: ten thousand sessions may end at the same moment."""
        ran = self._scheduler.tick(is_slice=is_slice)
        self._arm()
        return ran


class _Either:
    """A call by the clock, or in real time: whatever comes first."""

    def __init__(self, delays: Delays, timers: Timers, delay_ms: int, callback: Callable[[], object], name: str) -> None:
        self._callback = callback
        self._waiting: list[Timer] = [delays.call_later(delay_ms, self._call, name), timers.call_later(delay_ms, self._call)]

    def _call(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        for one in self._waiting:
            one.cancel()
