"""A node's use of asyncio: delayed calls, work on other threads, and the log's background work in between.

| | |
|---|---|
| `LoopTimers` | real time; nothing to do with the log's clock |
| `LoopThreads` | few threads, for what may wait for a disk, or keeps a processor busy; the node's state is not touched there |
| `Ticker` | calls the log manager's `tick` when something is due on the log's clock: retention, compaction, checkpoints |
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from tidelog.broker.metrics import Counters
from tidelog.clock import Clock
from tidelog.storage.log_manager import LogManager

logger = logging.getLogger("tidelog.broker")

T = TypeVar("T")

THREADS = 4
"""A disk has a few requests in its queue at best; more threads only take memory."""

AT_THE_END_S = 30.0
"""So long a broker that ends waits for a thread, which may have met a disk that does not answer."""

PROGRESS_S = 2.0

MAX_WAIT_S = 1.0
"""A clock may be set, and a task be scheduled by another one: never wait longer than this without looking."""

CLIENTS_SHARE = 9
"""While clients ask for anything, a slice of background work is followed by so many times its time for them."""


class LoopTimers:
    """`timers.Timers` of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Have `callback` called on the loop's thread."""
        if delay_ms <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_ms / 1000, callback)


class LoopThreads:
    """`timers.Blocking` of an event loop. No thread is there before the first call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int = THREADS, name: str = "tidelog-blocking") -> None:
        self._loop = loop
        self._count = count
        self._name = name
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._under_way: dict[Future[None], str] = {}
        """Work begun or waiting for a thread, by the name of its function."""

    def run(self, work: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        """Call `work` on another thread, then `done` with what it returned or raised, on the loop's."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, self._name)
        future = self._threads.submit(self._work, work, done)
        self._under_way[future] = getattr(work, "__qualname__", type(work).__name__)
        future.add_done_callback(self._over)

    def _over(self, future: Future[None]) -> None:
        self._under_way.pop(future, None)

    def _work(self, work: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        result: T | BaseException
        try:
            result = work()
        except BaseException as error:
            result = error
        if not self._is_closed:
            self._loop.call_soon_threadsafe(done, result)

    def close(self, at_most_s: float | None = None) -> bool:
        """Wait for what is under way; what has not begun never will. Whether all of it has come to its end within that time."""
        self._is_closed = True
        if self._threads is None:
            return True
        at_most_s = AT_THE_END_S if at_most_s is None else at_most_s
        self._threads.shutdown(wait=False, cancel_futures=True)
        until, left = monotonic() + at_most_s, set(self._under_way)
        while left:
            _, left = wait(left, min(max(until - monotonic(), 0), PROGRESS_S))
            names = ", ".join(sorted({self._under_way.get(future, "") for future in left}))
            if left and monotonic() >= until:
                logger.error("no longer waited for after %.0f s: %s", at_most_s, names)
                return False
            if left:
                logger.info("waiting for %s", names)
        return True


class Ticker:
    """Does the log's background work on the loop's thread, but for what can be done ahead on another one.

    Between two slices of it the clients have their turn: while they ask for anything it gets a tenth of the time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, manager: LogManager, clock: Clock, threads: LoopThreads, counters: Counters
    ) -> None:
        self._loop = loop
        self._manager = manager
        self._clock = clock
        self._threads = threads
        self._counters = counters
        self._received_bytes = 0
        self._next: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_ticking = False
        self._thread = threading.get_ident()
        self._clients_until = 0.0
        """Until then the loop is theirs, by its own time."""

    def start(self) -> None:
        """Begin."""
        self._is_running = True
        self._manager.scheduler.wake = self._wake
        self._arrange()

    def stop(self) -> None:
        """End; what is due later is the manager's business at its shutdown."""
        self._is_running = False
        self._manager.scheduler.wake = lambda: None
        if self._next is not None:
            self._next.cancel()

    def tick(self) -> int:
        """Do now what is due, and what becomes due by it; return how many tasks ran. For a clock that was moved by hand."""
        ran = 0
        for _ in range(1000):  # A task that is due again at once must not keep us forever.
            done = self._manager.tick()
            ran += done
            if not done:
                break
        return ran

    def _wake(self) -> None:
        """Look again: a task may be due sooner. On any thread."""
        if threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # The loop has ended meanwhile.
                self._loop.call_soon_threadsafe(self._wake)
        elif self._is_running and not self._is_ticking:
            self._arrange()

    def _arrange(self) -> None:
        if self._next is not None:
            self._next.cancel()
        due_ms = self._manager.scheduler.next_due_ms
        wait_s = MAX_WAIT_S if due_ms is None else min(max(due_ms - self._clock.now_ms(), 0) / 1000, MAX_WAIT_S)
        self._next = self._loop.call_at(max(self._loop.time() + wait_s, self._clients_until), self._run)

    def _run(self) -> None:
        if not self._is_running:
            return
        began = monotonic()
        self._is_ticking = True
        try:
            self._manager.scheduler.tick(self._threads.run)
        finally:
            self._is_ticking = False
        received, self._received_bytes = self._received_bytes, self._counters.received_bytes
        if received != self._received_bytes:
            self._clients_until = self._loop.time() + (monotonic() - began) * CLIENTS_SHARE
        self._arrange()
