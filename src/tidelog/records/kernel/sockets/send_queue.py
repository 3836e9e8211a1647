"""Sends small responses on a thread, many at a time (see send_queue.h).

    put … put → flush → the thread sends → what a full socket did not take: take_rests

The owner's thread calls every method. The responses of a socket are sent in the order in which they were put in. Before the owner
sends to such a socket in another way, or closes it, its last response must be settled (`is_settled`).
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import build_stamp, send_queue
else:
    from tidelog.records.kernel.primitives import build_stamp, send_queue

build_stamp.check(__name__, __file__)

COMPILED: bool = cython.compiled

MAX_BYTES = 64 * 1024
"""The largest response."""


class SendQueue:
    """A queue, and its thread if there is to be one; otherwise `flush` sends. Raises OSError."""

    def __init__(self, with_thread: bool) -> None:
        self._queue = send_queue.queue_open(with_thread)
        if not self._queue:
            raise OSError("no queue of responses can be made")

    def fileno(self) -> int:
        """Return a descriptor that is readable when a socket has not taken everything: call `take_rests`."""
        return self._queue.wake_fds[0]

    def put(self, fd: int, chunks: list, size: int) -> int:
        """Copy a response of `size` bytes for a non-blocking socket. Return its number, counted from 1.

        Raises ValueError if it is larger than `MAX_BYTES`, if the chunks have another size, or if the queue or the socket is
        closed.
        """
        if size > MAX_BYTES or fd < 0 or not self._queue:
            raise ValueError(
                f"a response of {size} bytes for socket {fd}: expected at most {MAX_BYTES} bytes, and an open socket"
            )
        send_queue.put(self._queue, fd, chunks, size)
        return self._queue.puts

    def flush(self) -> None:
        """Have sent what has been put in: up to three responses on this thread, more on the other one."""
        if self._queue and self._queue.puts != self._queue.told:
            with cython.nogil:
                send_queue.flush(self._queue)

    def is_settled(self, number: int) -> bool:
        """Return whether the first `number` responses have been sent and nothing is left to be taken. If not, call
        `take_rests`.
        """
        return not self._queue or send_queue.is_settled(self._queue, number)

    def take_rests(self) -> list:
        """Send everything on this thread. Return what the sockets did not take, in order: the socket and the bytes of each."""
        return send_queue.take_rests(self._queue) if self._queue else []

    def close(self) -> None:
        """Send everything on this thread, as far as the sockets take it, and end the other thread. Idempotent."""
        if not self._queue:
            return
        with cython.nogil:
            send_queue.finish(self._queue)
            send_queue.queue_close(self._queue)
        self._queue = cython.NULL if cython.compiled else None
