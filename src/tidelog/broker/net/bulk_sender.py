"""Sends large responses on threads that never need the interpreter, so that no other client waits for copies or for a disk.

| a large response | is sent |
|---|---|
| in memory, its connection the only active one | on the loop: it delays nobody, and a thread would take longer |
| in memory, beside other connections | by one of `WARM` threads, at most 1 MiB at a time in turn |
| on the disk | by one of `COLD` threads, after it was read; meanwhile the disk also reads what the client will want next |

With TLS the loop sends, because it encrypts; the threads only read from the disk first.

A thread never waits for a client: it reports what the socket has taken, and the connection hands over the rest when there is
room. So slow clients cost no threads. A connection that closes meanwhile shuts its socket down, and closes it when the thread has
reported: otherwise its number could belong to another client by then. If part of a file was removed under a response, sending
fails and the connection is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from tidelog.records import kernel

if TYPE_CHECKING:
    from tidelog.wire.codec import Bytes

logger = logging.getLogger("tidelog.broker")

LARGE_BYTES: Final = 128 * 1024
"""Responses of this size are large: a thread costs the loop as much time as sending fewer bytes."""

WARM: Final = min(4, os.cpu_count() or 1)
COLD: Final = 4
"""The number of threads. More would only take memory, because a disk's queue holds few requests."""

Done = Callable[[int, int], None]
"""Called with the number of bytes sent, and the error number, 0 for none."""


class BulkSender:
    """The threads of one server. They begin with the first large response. Use only on the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: kernel.Senders | None = None

    def send(self, fd: int, chunks: list[Bytes], done: Done) -> bool:
        """Send as much of `chunks` as the socket takes, then call `done`. The chunks must not change meanwhile.

        Return False if the system has no threads or descriptors for that now; then `done` is not called.
        """
        if self._pool is None:
            try:
                self._pool = kernel.Senders(WARM, COLD)
            except OSError:
                return False
            self._loop.add_reader(self._pool.fileno(), self._collect)
        self._pool.send(fd, chunks, done)
        return True

    def read(self, chunks: list[Bytes], done: Done) -> bool:
        """Read chunks from the disk into memory, then call `done`. Return False as `send` does."""
        return self.send(-1, chunks, done)

    def _collect(self) -> None:
        assert self._pool is not None
        for done, sent, error in self._pool.done():
            cast("Done", done)(sent, error)

    def close(self, at_most_s: float) -> bool:
        """End the threads. Return whether all have ended within that time. `done` is called for what they did not begin."""
        pool, self._pool = self._pool, None
        if pool is None:
            return True
        self._loop.remove_reader(pool.fileno())
        left = pool.close(at_most_s)
        if left is None:
            logger.error("gave up waiting after %.0f s: a disk does not answer", at_most_s)
            return False
        for done in left:
            cast("Done", done)(0, errno.ECANCELED)
        return True
