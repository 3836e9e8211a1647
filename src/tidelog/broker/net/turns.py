"""Decides which connection moves many bytes next. It is fair, regardless of the order in which the system reports ready sockets.

A connection takes a turn to receive a part of a large request (and to answer the request if it is complete), or to send more of a
large response. A turn moves 2 MiB at most. Once a round of the loop has moved `ROUND_BYTES`, no further turn begins in it, so
that small requests are answered in between.

| condition | a connection that needs a turn |
|---|---|
| the round has room, and no connection waits or has just waited | takes the turn at once |
| otherwise | waits behind all connections that already wait |
| the connection has just used a turn for which it had waited | joins the queue again at once |

Waiting connections are called first in the next round. So no connection has a second turn while another waits for its first.
Without the queue the loop would serve the first sockets of its list in every round, and would never serve the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Final

ROUND_BYTES: Final = 1024 * 1024
"""Once all connections together have moved this many bytes in a round of the loop, no further turn begins in it."""

ROUND_S: Final = 0.001
"""The same limit in seconds, for turns that move few bytes each."""

SHARED_S: Final = 0.1
"""How long a connection must have been the only active one, in seconds, before the loop does long work for it in one step."""


class Turns:
    """The queue of connections that wait to move bytes. Each server has one. `call_soon` is the loop's."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._moved_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_contended = False
        self.latest: object | None = None
        """The connection that received bytes most recently."""
        self.mixed_at = 0.0
        """The last time when the most recent connection differed from the one before it, by `monotonic`."""

    @property
    def are_shared(self) -> bool:
        """Whether more than one connection has been active within the last `SHARED_S`."""
        return monotonic() - self.mixed_at < SHARED_S

    @property
    def must_wait(self) -> bool:
        """Whether a connection must wait for its turn now."""
        return self._is_contended or self._moved_bytes >= ROUND_BYTES or bool(self._waiting)

    def moved(self, size: int) -> None:
        """Count the bytes that a connection has received or sent in its turn."""
        self._moved_bytes += size
        self._schedule()

    def wait(self, turn: Callable[[], None]) -> None:
        """Call `turn` in one of the next rounds, in the order of the calls to this method."""
        self._waiting.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_scheduled = False
        self._moved_bytes = 0
        waiting = self._waiting
        self._is_contended = bool(waiting)
        until = perf_counter() + ROUND_S
        for _ in range(len(waiting)):
            waiting.popleft()()
            if self._moved_bytes >= ROUND_BYTES or perf_counter() >= until:
                break
        if self._is_contended:
            self._schedule()
