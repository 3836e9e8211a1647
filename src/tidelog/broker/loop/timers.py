"""The interfaces through which the broker uses its event loop: delayed calls, and work on other threads. `loop.event_loop`
implements them with asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """Delayed calls in real time, for waits of requests, which must not depend on the log's clock. For other timers see
    `delays`.
    """

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop's thread after a delay."""


class Blocking(Protocol):
    """Runs work that may wait for a disk on other threads."""

    def run(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Call `work` on another thread, then call `done` on the event loop's thread with the result or exception."""
