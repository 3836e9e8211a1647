"""Streamed responses: exports and the live tail.

An export runs on a thread that waits for the client if it is slow, so only a few pieces are in memory. A tail reads the records
that have arrived since its last read. If there are too many, the tail skips the oldest, and an event has the number of skipped
offsets.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from tidelog.errors import TidelogError
from tidelog.web.context import Context
from tidelog.web.endpoints.tail import BEAT_S, POLL_S, Tail, event
from tidelog.web.jobs import Job, Jobs, Lane, Stopped
from tidelog.web.query import Query

PIECE_BYTES = 256 * 1024

PIECES = 4
"""The most pieces that wait for the client."""

DAY_S = 24 * 3600.0
"""Seconds after which an export or a tail ends."""


class _Pipe(io.RawIOBase):
    """A file that a thread writes to, and from which a coroutine sends pieces to the client."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop, pieces: asyncio.Queue[bytes | TidelogError | None]) -> None:
        super().__init__()
        self._job = job
        self._loop = loop
        self._pieces = pieces
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        for start in range(0, len(data), PIECE_BYTES):  # A line may be larger than all pieces that may wait.
            self._held += data[start : start + PIECE_BYTES]
            if len(self._held) >= PIECE_BYTES:
                self.send()
        return len(data)

    def send(self) -> None:
        """Pass what has been written to the coroutine. Wait if the client is slow. Raises Stopped if the client is gone."""
        held, self._held = bytes(self._held), bytearray()
        if held:
            self.put(held)

    def put(self, piece: bytes | TidelogError | None) -> None:
        sending = self._pieces.put(piece)
        try:
            waiting = asyncio.run_coroutine_threadsafe(sending, self._loop)
        except RuntimeError:  # The server has ended.
            sending.close()
            raise Stopped from None
        while True:
            self._job.check()
            with suppress(FutureTimeoutError):
                waiting.result(timeout=0.5)
                return


async def exported(jobs: Jobs, write: Callable[[Job, Any], None], source: str) -> AsyncGenerator[bytes, None]:
    """Yield what `write` writes to its file. A TidelogError that `write` raises before the first piece is raised here."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | TidelogError | None] = asyncio.Queue(PIECES)

    def work(job: Job) -> None:
        pipe = _Pipe(job, loop, pieces)
        try:
            write(job, pipe)
            pipe.send()
            pipe.put(None)
        except TidelogError as error:
            pipe.put(error)

    running = asyncio.ensure_future(jobs.run(Lane.LONG, DAY_S, work, source=source))
    try:
        while True:
            piece = await pieces.get()
            if isinstance(piece, TidelogError):
                raise piece
            if piece is None:
                return
            yield piece
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Stopped):
            await running


async def tailed(context: Context, jobs: Jobs, query: Query) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events: `start`, then `record`, `dropped` and `problem`; and `beat` while there are no others, to keep
    the connection alive. Raises TidelogError for invalid parameters, before the first event.
    """
    source = context.sources.named(query.text("source")).name
    tail = await jobs.run(Lane.QUICK, DAY_S, lambda job: Tail(context, query), source=source)
    silent_s = 0.0
    yield event("start", tail.reached())
    while True:
        try:
            found = await jobs.run(Lane.READ, BEAT_S, tail.poll, source=source)
        except TidelogError as error:
            found = [event("problem", {"what": str(error)})]
        for one in found:
            yield one
        silent_s = 0.0 if found else silent_s + POLL_S
        if silent_s >= BEAT_S:
            silent_s = 0.0
            yield event("beat", {})
        await asyncio.sleep(POLL_S)
