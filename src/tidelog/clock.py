"""Clocks. They are passed as arguments: no package below `cli/` and `spark/` reads the wall clock itself.

A clock returns epoch milliseconds, the unit of every Kafka timestamp. Code that needs "now" takes a `Clock` as an argument. Tests
pass a `ManualClock`, which they can advance by seven days at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SteadyClock", "SystemClock"]


class Clock(Protocol):
    """The interface of a clock."""

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        """Return epoch milliseconds. The machine's clock may be adjusted between two calls."""
        return time.time_ns() // 1_000_000


class SteadyClock:
    """A monotonic clock with an arbitrary start: use it for differences only."""

    def now_ms(self) -> int:
        """Return milliseconds since the arbitrary start."""
        return time.monotonic_ns() // 1_000_000


def steady(clock: Clock) -> Clock:
    """Return a clock for measuring durations: a `SteadyClock` if `clock` is the machine's clock, which may be adjusted; otherwise
    `clock` itself.
    """
    return SteadyClock() if isinstance(clock, SystemClock) else clock


class ManualClock:
    """A clock that moves only when it is advanced. It can also be set back, like a real clock.

    A broker registers a listener for work that becomes due when time passes. `advance` calls the listener, and returns once that
    work is done.
    """

    def __init__(self, now: int | datetime = 0) -> None:
        """Start at `now`: epoch milliseconds, or a datetime with a time zone.

        Raises TypeError for a value of any other type, ValueError for a datetime without a time zone.
        """
        self._now_ms = _epoch_ms(now)
        self._listeners: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Return the time that the clock was set to, in epoch milliseconds."""
        return self._now_ms

    def advance(self, by: int | timedelta) -> None:
        """Move the clock by milliseconds or a timedelta, backward if negative, and call the listeners. Raises TypeError for a
        value of any other type.
        """
        if isinstance(by, timedelta):
            by = by // _MILLISECOND
        elif isinstance(by, bool) or not isinstance(by, int):
            raise TypeError(f"a clock can be advanced by whole milliseconds or a timedelta, not by {by!r}")
        self._now_ms += by
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each advance, on the thread that calls `advance`. Return a function that unregisters it."""
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
            raise ValueError(f"a clock's time needs a time zone, but {now!r} has none: use datetime(..., tzinfo=UTC)")
        return (now - _EPOCH) // _MILLISECOND
    if isinstance(now, bool) or not isinstance(now, int):
        raise TypeError(f"a clock's time must be epoch milliseconds (an int) or a datetime with a time zone, not {now!r}")
    return now
