"""Time is injected: nothing below `cli/` and `spark/` reads the wall clock.

A clock answers in epoch milliseconds, the unit of every Kafka timestamp. Code that needs "now" takes a `Clock`
as an argument; tests hand in a `ManualClock` and seven days pass in no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SteadyClock", "SystemClock"]


class Clock(Protocol):
    """Anything that can say what time it is."""

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        """Return epoch milliseconds by the machine's clock, which may be set meanwhile."""
        return time.time_ns() // 1_000_000


class SteadyClock:
    """A monotonic time since some moment in the past: for differences only."""

    def now_ms(self) -> int:
        """Return milliseconds since that moment."""
        return time.monotonic_ns() // 1_000_000


def steady(clock: Clock) -> Clock:
    """Return the clock that says how long something takes: for the machine's, which may be set meanwhile, a steady one."""
    return SteadyClock() if isinstance(clock, SystemClock) else clock


class ManualClock:
    """A clock that moves only when it is set; it may also be set back, as real ones are.

    A broker, which has work to do when time passes, hands in a listener: `advance` calls it, and returns after it.
    """

    def __init__(self, now: int | datetime = 0) -> None:
        """Begin at `now`: epoch milliseconds, or a datetime with a time zone.

        Raises TypeError for anything else, ValueError for a datetime without a time zone.
        """
        self._now_ms = _epoch_ms(now)
        self._listeners: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Return the time that the clock was moved to, in epoch milliseconds."""
        return self._now_ms

    def advance(self, by: int | timedelta) -> None:
        """Move by milliseconds or a timedelta, backward when negative, and call those who listen. Raises TypeError."""
        if isinstance(by, timedelta):
            by = by // _MILLISECOND
        elif isinstance(by, bool) or not isinstance(by, int):
            raise TypeError(f"a clock is advanced by whole milliseconds or a timedelta, not by {by!r}")
        self._now_ms += by
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each advance, on the thread that advances; return what ends that."""
        self._listeners.append(listener)

        def forget() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return forget


_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _epoch_ms(now: int | datetime) -> int:
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ValueError(f"a clock's time needs a time zone: {now!r} has none, datetime(..., tzinfo=UTC) has")
        return (now - _EPOCH) // _MILLISECOND
    if isinstance(now, bool) or not isinstance(now, int):
        raise TypeError(f"a clock's time is epoch milliseconds (an int) or a datetime with a time zone, not {now!r}")
    return now
