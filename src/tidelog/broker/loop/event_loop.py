"""What a broker uses of asyncio besides sockets: delayed calls, work on other threads, and the log's background work.

| | |
|---|---|
| `LoopTimers` | delayed calls in real time, independent of the log's clock |
| `LoopThreads` | a few threads for disk waits and heavy computation; they never touch the node's state |
| `Ticker` | calls the log manager's `tick` when retention, compaction or a checkpoint is due on the log's clock |
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from time import monotonic
from typing import TypeVar

from tidelog.broker.loop.metrics import Counters
from tidelog.clock import Clock
from tidelog.storage.log_manager import LogManager

logger = logging.getLogger("tidelog.broker")

T = TypeVar("T")

THREADS = 4
"""The most threads for disk work. More threads would only take memory, because a disk handles few requests at once."""

AT_THE_END_S = 30.0
"""How long shutdown waits for a thread, in seconds. The thread may be stuck on a disk that does not respond."""

PROGRESS_S = 2.0

MAX_WAIT_S = 1.0
"""The longest wait between two checks for due tasks, in seconds. Checks are needed because the clock may be set, and another
thread may schedule a task."""

CLIENTS_SHARE = 9
"""While clients send requests, each slice of background work is followed by a pause of this many times its duration."""


class LoopTimers:
    """Implements `timers.Timers` with delayed calls on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.Handle:
        if delay_ms <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_ms / 1000, callback)


class LoopThreads:
    """Implements `timers.Blocking`: runs work on other threads, which start with the first call.

    Work runs inside `locked`, which keeps the data folder locked, because a thread may outlast the broker.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        count: int = THREADS,
        name: str = "tidelog-blocking",
        locked: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._loop = loop
        self._count = count
        self._name = name
        self._locked = locked
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._under_way: dict[Future[None], str] = {}
        """Pending or running work, by the name of its function."""

    def run(self, work: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
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
            with self._locked():
                result = work()
        except BaseException as error:
            result = error
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._deliver, done, result)

    def _deliver(self, done: Callable[[T | BaseException], object], result: T | BaseException) -> None:
        # After `close`, `done` could continue without threads, and block the loop until the disk answers.
        if not self._is_closed:
            done(result)

    def close(self, at_most_s: float | None = None) -> bool:
        """Wait for running work, and drop work that has not begun. Return whether all running work ended within `at_most_s`
        seconds (None: `AT_THE_END_S`).
        """
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
                logger.error("gave up waiting after %.0f s for work that is still running: %s", at_most_s, names)
                return False
            if left:
                logger.info("waiting for %s", names)
        return True


class Ticker:
    """Does the log's background work on the event loop's thread, except for work that another thread can prepare.

    Clients are served between two slices. While they send requests, the background work gets a tenth of the time.
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
        """Until this time on the loop's clock, background work is paused in favour of clients."""

    def start(self) -> None:
        """Start the background work."""
        self._is_running = True
        self._manager.scheduler.wake = self._wake
        self._arrange()

    def stop(self) -> None:
        """Stop the background work. The manager does the remaining tasks when it shuts down."""
        self._is_running = False
        self._manager.scheduler.wake = lambda: None
        if self._next is not None:
            self._next.cancel()

    def tick(self) -> int:
        """Run the tasks that are due now, and tasks that become due by running them. Return how many ran. Call it after the
        clock was moved by hand.
        """
        ran = 0
        for _ in range(1000):  # A task that is immediately due again must not loop forever.
            done = self._manager.tick()
            ran += done
            if not done:
                break
        return ran

    def _wake(self) -> None:
        """Check again for due tasks, because one may be due sooner. Any thread may call this."""
        if threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # The loop has been closed in the meantime.
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
