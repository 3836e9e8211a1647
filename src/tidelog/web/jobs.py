"""Runs reads on threads: a bounded number at a time, each with a time limit. If the client closes a request, its read ends.

| lane | threads | for |
|---|---|---|
| QUICK | 4 | requests that need only the ends and indexes of files, or what brokers report |
| READ | 3 | requests that read records: pages of records, counts, cuts |
| LONG | 2 | exports |

Quick requests never wait for long reads. Each source has its own threads, so that brokers that do not answer delay no
other source. Only one job of a server at a time may do a large read (`Job.take_turn`), so the memory of large reads does not
add up. Between batches, a read asks its `Job` whether to end. If so, the read ends there, and the response says how far it got.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

from tidelog.errors import TidelogError

T = TypeVar("T")


SPARE_BYTES = 64 << 20
"""The most bytes that a job may read to find the times of segments without a map."""


class Lane(Enum):
    """The threads that a job runs on. A member's value is the name and the number of its threads."""

    QUICK = "quick", 4
    READ = "read", 3
    LONG = "long", 2


LARGE_BYTES = 16 << 20
"""A job that reads this many bytes at once waits for its turn (`Job.take_turn`); so does a download."""

TURN_S = 5.0
"""Seconds that a job waits for its turn."""


class BusyError(TidelogError):
    """Another large read is running and did not end in time."""


class Stopped(Exception):  # noqa: N818  # nothing failed
    """The client no longer waits for the job's result."""


class Job:
    """One read of a request. After `limit_s` seconds, the read ends and returns what it has found."""

    def __init__(self, limit_s: float, turn: threading.Lock | None = None) -> None:
        self._end = time.monotonic() + limit_s
        self._spare = SPARE_BYTES
        self._stopped = threading.Event()
        self._turn = turn or threading.Lock()
        self._has_turn = False

    def stop(self) -> None:
        """Stop the job, because the client no longer waits for its result."""
        self._stopped.set()

    def is_late(self) -> bool:
        """Whether the job's time is over, so that the job should return what it has found. Raises Stopped."""
        self.check()
        return time.monotonic() >= self._end

    def may_build(self, size_bytes: int) -> bool:
        """Whether the job may read this many more bytes to improve its result. If so, these bytes count towards `SPARE_BYTES`."""
        if size_bytes > self._spare:
            return False
        self._spare -= size_bytes
        return True

    def take_turn(self, size_bytes: int) -> None:
        """If this job is about to read `LARGE_BYTES` or more at once, wait until no other job is doing a large read. The job then
        holds the turn until it ends. Raises BusyError.
        """
        until = time.monotonic() + TURN_S
        while size_bytes >= LARGE_BYTES and not self._has_turn:
            self._has_turn = self._turn.acquire(timeout=0.1)
            self.check()
            if not self._has_turn and time.monotonic() >= until:
                raise BusyError(
                    "the server is busy with another download or large read", expected="one at a time: try again later"
                )
        if self._has_turn:
            _return_freed()

    def end(self) -> None:
        """Give up the turn, if the job holds it."""
        if self._has_turn:
            self._has_turn = False
            self._turn.release()

    def check(self) -> None:
        """Raise Stopped if the client no longer waits."""
        if self._stopped.is_set():
            raise Stopped


class Jobs:
    """The threads of a server."""

    def __init__(self) -> None:
        self._pools: dict[tuple[Lane, str], ThreadPoolExecutor] = {}
        self._running: set[Job] = set()
        self.turn = threading.Lock()

    async def run(
        self,
        lane: Lane,
        limit_s: float,
        work: Callable[[Job], T],
        closed: Callable[[], Awaitable[Any]] | None = None,
        *,
        source: str = "",
    ) -> T:
        """Run `work`, which reads the source, on a thread of `lane`, and return its result. If `closed` returns first, stop the
        job and raise Stopped.
        """
        job = Job(limit_s, self.turn)
        self._running.add(job)
        if (lane, source) not in self._pools:
            self._pools[lane, source] = ThreadPoolExecutor(lane.value[1], f"tidelog-ui-{lane.value[0]}-{source}")
        result = asyncio.get_running_loop().run_in_executor(self._pools[lane, source], _started, work, job)
        watch = None if closed is None else asyncio.ensure_future(closed())
        try:
            await asyncio.wait([one for one in (result, watch) if one is not None], return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise Stopped
            return await result
        finally:
            job.stop()
            self._running.discard(job)
            if watch is not None:
                watch.cancel()
            if not result.done():
                result.cancel()
                result.add_done_callback(lambda done: done.cancelled() or done.exception())

    def close(self) -> None:
        """Stop all jobs, and wait for their threads."""
        for job in list(self._running):
            job.stop()
        for pool in self._pools.values():
            with suppress(RuntimeError):
                pool.shutdown(wait=True, cancel_futures=True)


def _return_freed() -> None:
    """Make glibc return freed memory to the system. Do nothing with other C libraries, which lack `malloc_trim`."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _started(work: Callable[[Job], T], job: Job) -> T:
    try:
        job.check()
        return work(job)
    finally:
        job.end()
