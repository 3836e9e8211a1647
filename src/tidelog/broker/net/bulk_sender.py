"""Sends large responses on threads that never need the interpreter, so that no other client waits for copies or for a disk.

| a large response | is sent |
|---|---|
| in memory, and no other connection is active | on the event loop: no client is delayed, and a thread would take longer |
| in memory, and other connections are active | by one of `WARM` threads, at most 1 MiB at a time in turn |
| on disk | by one of `COLD` threads, which first reads it, and lets the kernel read ahead the bytes that follow |

With TLS the event loop encrypts and sends; the threads only read from the disk first.

A thread never waits for a client: it reports how many bytes the socket has taken, and the connection passes on the rest when
there is room. So slow clients occupy no threads. If a connection is closed while a thread sends, its socket is shut down at once,
but closed only after the thread has reported. Otherwise the socket's number could already belong to another client. If part of a
file is removed while it is being sent, sending fails and the connection is closed.
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
"""Responses of at least this size are large. For smaller ones, using a thread would cost the event loop more time than sending.
"""

WARM: Final = min(4, os.cpu_count() or 1)
COLD: Final = 4
"""The number of threads. More threads would only take memory, because a disk's queue holds few requests."""

Done = Callable[[int, int], None]
"""Called with the number of bytes sent and the error number, which is 0 if there was no error."""


class BulkSender:
    """The threads of one server. They are started by the first large response. Use only on the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: kernel.Senders | None = None

    def send(self, fd: int, chunks: list[Bytes], done: Done) -> bool:
        """Send as much of `chunks` as the socket takes, then call `done`. The chunks must not change before that.

        Return False, without calling `done`, if the system has no threads or descriptors left.
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
        """Read chunks from the disk into memory, then call `done`. Return False in the same case as `send`."""
        return self.send(-1, chunks, done)

    def _collect(self) -> None:
        assert self._pool is not None
        for done, sent, error in self._pool.done():
            cast("Done", done)(sent, error)

    def close(self, at_most_s: float) -> bool:
        """End the threads. Return whether all have ended within `at_most_s` seconds. If so, `done` gets ECANCELED for each call
        that had not begun.
        """
        pool, self._pool = self._pool, None
        if pool is None:
            return True
        self._loop.remove_reader(pool.fileno())
        left = pool.close(at_most_s)
        if left is None:
            logger.error("gave up waiting for threads that read from a disk after %.0f s: the disk does not respond", at_most_s)
            return False
        for done in left:
            cast("Done", done)(0, errno.ECANCELED)
        return True
