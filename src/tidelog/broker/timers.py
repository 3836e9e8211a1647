"""A node's interface to its loop: delayed calls, and other threads. `server.event_loop` has asyncio's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    """A call that waits for its time."""

    def cancel(self) -> None:
        """Forget it."""


class Timers(Protocol):
    """Calls back later, in real time: how long a client waits has nothing to do with the log's clock. See also `delays`."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Have `callback` called on the loop's thread."""


class Blocking(Protocol):
    """Does what may wait for a disk elsewhere than on the loop's thread."""

    def run(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Call `work` on another thread, then `done` with what it returned or raised, on the loop's."""
