"""Threads that send bytes to sockets: does in Python what sending.h does in C. Which bytes are in memory is unknown, so the
threads send everything.
"""

from __future__ import annotations

import errno
import os
import threading
from queue import SimpleQueue

_TURN_BYTES = 1 << 20


class Job:
    """The bytes that are still to be sent to the socket `fd`. If `fd` is -1, they are only read."""

    def __init__(self, key: int, fd: int) -> None:
        self.key = key
        self.fd = fd
        self.error = 0
        self.sent = 0
        self.buffers: list[memoryview] = []
        self.next: Job | None = None


class Pool:
    """The threads, the waiting jobs, and the finished jobs. `wake_fds` is a pipe, which gets a byte when a job is done."""

    def __init__(self, threads: int) -> None:
        self.wake_fds = os.pipe()
        for fd in self.wake_fds:
            os.set_blocking(fd, False)
        self.waiting: SimpleQueue[Job | None] = SimpleQueue()
        self.done: SimpleQueue[Job] = SimpleQueue()
        self.threads = [threading.Thread(target=self._serve, daemon=True, name="tidelog-sender") for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _serve(self) -> None:
        while (job := self.waiting.get()) is not None:
            if job.fd < 0:
                for one in job.buffers:
                    bytes(one[::4096])
            elif not _send(job):
                self.waiting.put(job)
                continue
            self.done.put(job)
            try:
                os.write(self.wake_fds[1], b"\0")
            except BlockingIOError:
                pass


def _send(job: Job) -> bool:
    left = _TURN_BYTES
    while job.buffers:
        if left <= 0:
            return False
        try:
            count = os.write(job.fd, job.buffers[0][:left])
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
                job.error = error.errno or errno.EIO
            return True
        job.sent += count
        left -= count
        job.buffers[0] = job.buffers[0][count:]
        if not job.buffers[0]:
            del job.buffers[0]
    return True


def pool_open(warm: int, cold: int) -> Pool:
    """Start a pool of `warm` + `cold` threads."""
    return Pool(warm + cold)


def job_new(key: int, fd: int, _: int) -> Job:
    """Return a job without buffers. `key` identifies it."""
    return Job(key, fd)


def job_add(job: Job, chunk: bytes | bytearray | memoryview) -> None:
    """Add a buffer, which the caller must keep until the job is done."""
    if len(chunk):
        job.buffers.append(memoryview(chunk))


def job_free(job: Job) -> None:
    """Free a job."""
    job.buffers = []


def pool_put(pool: Pool, job: Job) -> None:
    """Queue a job for the threads."""
    pool.waiting.put(job)


def pool_take(pool: Pool) -> Job | None:
    """Return the finished jobs as a linked list (`next`), or None."""
    try:
        while os.read(pool.wake_fds[0], 64):
            pass
    except BlockingIOError:
        pass
    first = None
    while not pool.done.empty():
        job = pool.done.get()
        job.next, first = first, job
    return first


def pool_close(pool: Pool, seconds: float) -> bool:
    """End the threads after their jobs. Wait up to `seconds` for each, and return whether all have ended."""
    for _ in pool.threads:
        pool.waiting.put(None)
    for thread in pool.threads:
        thread.join(seconds)
    is_over = not any(thread.is_alive() for thread in pool.threads)
    if is_over:
        for fd in pool.wake_fds:
            os.close(fd)
    return is_over


def is_in_memory(_: object) -> bool:
    """Return False, because this is unknown in Python."""
    return False
