"""Timers for sessions, rebalance delays and transaction timeouts.

The timers use the injected clock, so that a test can end a session by advancing the clock. With the machine's clock they use
monotonic time (`tidelog.clock.steady`), so that no session ends because the clock is set. Timers do not survive a restart.

The wait of a single request, such as a delayed fetch, uses real time instead, independent of the log's clock (`node.timers`).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.loop.timers import Timer, Timers
from tidelog.clock import Clock, SteadyClock, steady
from tidelog.storage.scheduler import ScheduledTask, Scheduler

Delay = ScheduledTask
"""A scheduled call; `cancel` cancels it."""


class Delays:
    """Schedules calls on the broker's clock. Use only on the event loop's thread."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = steady(clock)
        self._scheduler = Scheduler(self._clock)
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._is_stopped = False

    def now_ms(self) -> int:
        """Return the current time in ms. Only differences are meaningful, because the time may count from the machine's start."""
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], object], name: str = "delay") -> Delay:
        """Call `callback` once, `delay_ms` from now or a little later; `name` is logged if the call fails."""
        delay = self._scheduler.schedule(name, callback, delay_ms=max(delay_ms, 0))
        self._arm()
        return delay

    def call_at_last(self, delay_ms: int, callback: Callable[[], object], name: str = "delay") -> Timer:
        """Call `callback` like `call_later`, but after at most `delay_ms` of real time, even if a manual clock does not
        advance. For short waits whose exact length does not matter.
        """
        if isinstance(self._clock, SteadyClock):
            return self.call_later(delay_ms, callback, name)
        return _Either(self, self._timers, delay_ms, callback, name)

    def every(self, period_ms: int, callback: Callable[[], object], name: str) -> Delay:
        """Call `callback` every `period_ms`, first after one period."""
        delay = self._scheduler.schedule(name, callback, delay_ms=period_ms, period_ms=period_ms)
        self._arm()
        return delay

    def tick(self) -> int:
        """Run the calls that are due, and return how many ran. With the machine's clock this happens automatically."""
        return self._tick(is_slice=False)

    def stop(self) -> None:
        """Drop all scheduled calls."""
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
        # One millisecond more, because a timer that fires slightly early would find nothing due.
        self._timer = self._timers.call_later(max(due_ms - self._clock.now_ms(), 0) + 1, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if not self._is_stopped:
            self._tick(is_slice=True)

    def _tick(self, *, is_slice: bool) -> int:
        """Run the calls that are due. With `is_slice`, run some milliseconds of them: thousands of sessions may end together."""
        ran = self._scheduler.tick(is_slice=is_slice)
        self._arm()
        return ran


class _Either:
    """A call that is scheduled both on the clock and in real time. It runs once, at the earlier of the two times."""

    def __init__(self, delays: Delays, timers: Timers, delay_ms: int, callback: Callable[[], object], name: str) -> None:
        self._callback = callback
        self._waiting: list[Timer] = [delays.call_later(delay_ms, self._call, name), timers.call_later(delay_ms, self._call)]

    def _call(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        for one in self._waiting:
            one.cancel()
