"""Threads that send to sockets: bytes in memory at once, bytes on a disk when the disk has delivered them (see sending.h).

The owner's thread calls every method. It watches `fileno`, and calls `done` when the descriptor is readable. A socket has one job
at a time, and its owner must not close it before the job is done. Shutting down the socket ends the job at once.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import build_stamp, sending
else:
    from tidelog.records.kernel.primitives import build_stamp, sending

build_stamp.check(__name__, __file__)

COMPILED: bool = cython.compiled

MAX_BUFFERS = 1024
"""The most chunks of one job (IOV_MAX)."""

_stuck: list = []
"""The chunks that threads of closed pools still use, because their disk has not answered."""


class Senders:
    """A pool of threads: `warm` threads send bytes that are in memory, `cold` threads wait for disks. Raises OSError."""

    def __init__(self, warm: int, cold: int) -> None:
        self._kept = {}
        self._last = 0
        self._pool = sending.pool_open(warm, cold)
        if not self._pool:
            raise OSError("no sender threads can be started")

    def fileno(self) -> int:
        """Return a descriptor that is readable when jobs are done."""
        return self._pool.wake_fds[0]

    def send(self, fd: int, chunks: list, owner: object) -> None:
        """Send chunks, at most the first `MAX_BUFFERS`, to a non-blocking socket, as far as the socket accepts them. The chunks
        must not change meanwhile. With `fd` -1, they are only read into memory.
        """
        if len(chunks) > MAX_BUFFERS:
            chunks = chunks[:MAX_BUFFERS]
        self._last += 1
        job = sending.job_new(self._last, fd, len(chunks))
        if not job:
            raise MemoryError
        for chunk in chunks:
            sending.job_add(job, chunk)
        self._kept[self._last] = (owner, chunks)
        sending.pool_put(self._pool, job)

    def done(self) -> list:
        """Return the jobs that ended since the last call: the owner, the number of bytes sent, and the error number (0 for none)
        of each.
        """
        found = []
        job = sending.pool_take(self._pool)
        while job:
            owner, _ = self._kept.pop(job.key)
            found.append((owner, job.sent, job.error))
            following = job.next
            sending.job_free(job)
            job = following
        return found

    def close(self, seconds: float) -> list | None:
        """End the threads, and drop jobs that have not begun. Return the owners of all jobs that `done` has not returned. Return
        None if a thread has not ended within `seconds`, because its disk does not answer: the thread still uses its socket.
        """
        pool = self._pool
        self._pool = cython.NULL if cython.compiled else None
        is_over: cython.bint
        with cython.nogil:
            is_over = sending.pool_close(pool, seconds)
        if is_over:
            return [owner for owner, _ in self._kept.values()]
        _stuck.append(self._kept)
        return None


def is_in_memory(chunks: list) -> bool:
    """Return whether all chunks are in memory. Parts of mapped files may not be. The bytes that follow in such a file must be in
    memory, too: otherwise a thread sends the chunks, and has the disk read ahead.
    """
    for chunk in chunks:
        if len(chunk) >= 32768 and not sending.is_in_memory(chunk):
            return False
    return True
