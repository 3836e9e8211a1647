"""Reads run on threads, a bounded number at a time, each for a bounded time; closing a request ends its read.

| lane | threads | for |
|---|---|---|
| QUICK | 4 | answers from the files' ends and indexes, and what brokers report |
| READ | 3 | answers that read records: pages of records, counts, cuts |
| LONG | 2 | exports |

So long reads never keep the quick answers waiting. A read asks its `Job` between two batches whether it must end: it stops where
it is, and the answer says how far it came.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


SPARE_BYTES = 64 << 20
"""How many bytes a job may read to know the times of segments without a map."""


class Lane(Enum):
    """The threads that a job runs on; the value is their number."""

    QUICK = "quick", 4
    READ = "read", 3
    LONG = "long", 2


class Stopped(Exception):  # noqa: N818  # nothing failed
    """Nobody waits for the job's result any more."""


class Job:
    """One read. `limit_s` bounds its time; a job that is over returns what it has found."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s
        self._spare = SPARE_BYTES
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the job: nobody waits for its result."""
        self._stopped.set()

    def is_late(self) -> bool:
        """Whether the job's time is over; what has been found so far is the answer. Raises Stopped."""
        self.check()
        return time.monotonic() >= self._end

    def may_build(self, size_bytes: int) -> bool:
        """Whether the job may still read these bytes to make its answer better; they are taken from what it may."""
        if size_bytes > self._spare:
            return False
        self._spare -= size_bytes
        return True

    def check(self) -> None:
        """Raise Stopped if nobody waits any more."""
        if self._stopped.is_set():
            raise Stopped


class Jobs:
    """The threads of a server."""

    def __init__(self) -> None:
        self._pools = {lane: ThreadPoolExecutor(lane.value[1], f"tidelog-ui-{lane.value[0]}") for lane in Lane}
        self._running: set[Job] = set()

    async def run(
        self, lane: Lane, limit_s: float, work: Callable[[Job], T], closed: Callable[[], Awaitable[Any]] | None = None
    ) -> T:
        """Return the result of `work`. When `closed` returns first, the job is stopped, and Stopped is raised."""
        job = Job(limit_s)
        self._running.add(job)
        result = asyncio.get_running_loop().run_in_executor(self._pools[lane], _started, work, job)
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


def _started(work: Callable[[Job], T], job: Job) -> T:
    job.check()
    return work(job)
