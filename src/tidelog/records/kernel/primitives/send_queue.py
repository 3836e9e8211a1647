"""A queue of small responses: does in Python what send_queue.h does in C. There is no thread, because it would need the
interpreter. The owner sends everything itself.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress

_TOGETHER = 16

Rest = tuple[int, bytes]


class Queue:
    """The responses that wait (`waiting`), and what sockets did not take (`rests`). `wake_fds` is a pipe, which gets a byte when
    there is a first rest.
    """

    def __init__(self) -> None:
        self.wake_fds = os.pipe()
        for fd in self.wake_fds:
            os.set_blocking(fd, False)
        self.waiting: list[Rest] = []
        self.rests: list[Rest] = []
        self.puts = 0
        self.told = -1


def queue_open(_: bool) -> Queue:
    """Return a queue."""
    return Queue()


def queue_close(queue: Queue) -> None:
    """Close the pipe."""
    for fd in queue.wake_fds:
        os.close(fd)


def put(queue: Queue, fd: int, chunks: list[bytes], size: int) -> None:
    """Put in a response of `size` bytes."""
    data = b"".join(chunks)
    if len(data) != size:
        raise ValueError("the chunks do not have the size of the response")
    queue.puts += 1
    queue.waiting.append((fd, data))
    if len(queue.waiting) == _TOGETHER:
        finish(queue)


def finish(queue: Queue) -> None:
    """Send everything, and keep what the sockets do not take, and what follows for the same sockets."""
    waiting, queue.waiting = queue.waiting, []
    full = {fd for fd, _ in queue.rests}
    for fd, data in waiting:
        left = data if fd in full else data[_sent(fd, data) :]
        if left:
            full.add(fd)
            if not queue.rests:
                os.write(queue.wake_fds[1], b"\0")
            queue.rests.append((fd, left))


def _sent(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
            return 0
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as broken:
            broken.shutdown(socket.SHUT_RDWR)
        return len(data)


flush = finish


def is_settled(queue: Queue, _: int) -> bool:
    """Return whether everything has been sent."""
    return not queue.waiting and not queue.rests


def take_rests(queue: Queue) -> list[Rest]:
    """Send everything, and return what the sockets did not take, in order."""
    try:
        while os.read(queue.wake_fds[0], 64):
            pass
    except BlockingIOError:
        pass
    finish(queue)
    rests, queue.rests = queue.rests, []
    return rests
