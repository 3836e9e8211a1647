"""Sends the small responses of one round of the event loop together, on a thread.

    ready sockets → requests are answered, and the responses queued → after 16 of them, and before the next wait, a thread sends

`send` takes a third of a small Produce's time, and longer if it wakes a thread of the client. Meanwhile the loop handles the next
requests. A thread that sleeps takes long to wake, so the loop sends up to three responses itself. If only one socket is ready,
its response is sent at once. The thread never needs the interpreter, and never waits for a client: what a socket does not take is
returned to its connection.

A round handles the sockets of bulk producers last: a small request then waits for the rest of one round at most, not of two.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from tidelog.processors import processors
from tidelog.records import kernel

T = TypeVar("T")

logger = logging.getLogger("tidelog.broker")

SMALL_BYTES: Final = 16 * 1024
"""Responses of this size and more are sent at once: copying them takes longer than waking a client. The queue is also flushed
before more bytes of requests than this are handled."""


class AnswerRounds:
    """The queued responses of a loop. Use only on the loop's thread."""

    def __init__(self, queue: kernel.SendQueue | None = None) -> None:
        self._queue = queue
        self.ready = 0
        """The number of sockets that were ready in this round; 0 if the loop does not report it, and then nothing is queued."""
        self.bulk: set[int] = set()
        """The sockets that have sent parts of large requests since they were last ready. In a round they come last."""
        self.owners: dict[int, Callable[[bytes], None]] = {}
        """For each socket: called with the bytes of its responses that it did not take."""

    def put(self, fd: int, chunks: list[Any], size: int) -> int:
        """Queue a response to be sent in this round. Return its number, for `settle`."""
        assert self._queue is not None
        return self._queue.put(fd, chunks, size)

    def flush(self) -> None:
        """Have sent what is queued. Call it before work that takes long."""
        if self._queue is not None:
            self._queue.flush()

    def settle(self, number: int) -> None:
        """If one of the first `number` responses is not settled, send everything that is queued, and return to the connections
        what their sockets did not take.

        Call it before anything else is sent to the socket, and before it is closed.
        """
        assert self._queue is not None
        if not self._queue.is_settled(number):
            self.take_back()

    def take_back(self) -> None:
        """Send everything that is queued, and return to the connections what their sockets did not take."""
        assert self._queue is not None
        for fd, data in self._queue.take_rests():
            try:
                self.owners[fd](data)
            except Exception:
                logger.exception("a connection is cut off, because part of a response was lost")
                with suppress(OSError), socket.socket(fileno=os.dup(fd)) as one:
                    one.shutdown(socket.SHUT_RDWR)


class _Selector(selectors.DefaultSelector):
    """Waits for sockets. Before each wait, the responses of the round are sent."""

    def __init__(self, answers: AnswerRounds, queue: kernel.SendQueue) -> None:
        super().__init__()
        self._answers = answers
        self._flush = queue.flush

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready sockets, those of bulk producers last."""
        self._flush()
        ready = super().select(timeout)
        answers = self._answers
        answers.ready = len(ready)
        bulk = answers.bulk
        if bulk and len(ready) > 1:
            ready.sort(key=lambda one: one[0].fd in bulk)
            bulk.difference_update([one[0].fd for one in ready])
        return ready


class BrokerLoop(asyncio.SelectorEventLoop):
    """An event loop that counts the ready sockets of each round, and ends the round by sending the queued responses."""

    def __init__(self) -> None:
        self._queue = kernel.SendQueue(processors() > 1)
        self.answers = AnswerRounds(self._queue)
        try:
            super().__init__(_Selector(self.answers, self._queue))
            self.add_reader(self._queue.fileno(), self.answers.take_back)
        except BaseException:
            self._queue.close()
            raise

    def close(self) -> None:
        super().close()
        self._queue.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, in a `BrokerLoop`."""
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(main)


def answers_of(loop: asyncio.AbstractEventLoop) -> AnswerRounds:
    """Return the queued responses of a loop. In another loop than a `BrokerLoop`, each response is sent at once."""
    return loop.answers if isinstance(loop, BrokerLoop) else AnswerRounds()
