"""Sends the small responses of one round of the event loop together.

    ready sockets → requests are answered, and the responses kept → after 16 of them, and before the next wait, all are sent

If the client waits for responses, each `send` wakes a thread of it, which costs the sender more than the call itself. While the
client handles the first of sixteen responses, it gets the others without being woken. If only one socket is ready, its response
is sent at once.

A round handles the sockets of bulk producers last: a small request then waits for the rest of one round at most, not of two.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

logger = logging.getLogger("tidelog.broker")

SENT_TOGETHER: Final = 16
"""The most responses that are kept: fewer than a millisecond of work."""

SMALL_BYTES: Final = 16 * 1024
"""Larger responses are sent at once: copying them takes longer than waking a client. And before more bytes than that are handled,
what is kept is sent."""


class AnswerRounds:
    """The kept responses of a loop. Use only on the loop's thread."""

    def __init__(self) -> None:
        self.ready = 0
        """The number of sockets that were ready in this round; 0 if the loop does not report it, and then nothing is kept."""
        self.bulk: set[int] = set()
        """The sockets that have sent parts of large requests since they were last ready. In a round they come last."""
        self._kept: list[Callable[[], None]] = []

    def keep(self, send: Callable[[], None]) -> None:
        """Call `send` soon, in this round."""
        kept = self._kept
        kept.append(send)
        if len(kept) >= SENT_TOGETHER:
            self.send()

    def send(self) -> bool:
        """Send what is kept. Return whether anything was."""
        kept = self._kept
        if not kept:
            return False
        self._kept = []
        for send in kept:
            try:
                send()
            except Exception:
                logger.exception("a kept response could not be sent")
        return True


class _Selector(selectors.DefaultSelector):
    """Waits for sockets. Before that it sends what the round has kept."""

    def __init__(self, answers: AnswerRounds) -> None:
        super().__init__()
        self._answers = answers

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready sockets. Sending may schedule calls on the loop: after it, do not wait."""
        ready = super().select(0 if self._answers.send() else timeout)
        answers = self._answers
        answers.ready = len(ready)
        bulk = answers.bulk
        if bulk and len(ready) > 1:
            ready.sort(key=lambda one: one[0].fd in bulk)
            bulk.difference_update([one[0].fd for one in ready])
        return ready


class BrokerLoop(asyncio.SelectorEventLoop):
    """An event loop that counts the ready sockets of each round, and ends the round by sending the kept responses."""

    def __init__(self) -> None:
        self.answers = AnswerRounds()
        super().__init__(_Selector(self.answers))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, in a `BrokerLoop`."""
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(main)


def answers_of(loop: asyncio.AbstractEventLoop) -> AnswerRounds:
    """Return the kept responses of a loop. In another loop than a `BrokerLoop`, each response is sent at once."""
    return loop.answers if isinstance(loop, BrokerLoop) else AnswerRounds()
