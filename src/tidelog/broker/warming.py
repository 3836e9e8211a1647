"""Answers that need bytes from a disk, without a wait on the loop: what is missing is read on another thread, then work goes on.

Work is called until it is done. It does what it can and keeps how far it is; where bytes are missing, `NotCachedError` comes
out of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.broker.api import Outcome, Request
from tidelog.log.patience import NotCachedError, no_waiting

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.wire.codec import Message

logger = logging.getLogger("tidelog.broker")

T = TypeVar("T")

MAX_WARMINGS = 64
"""So often one request is interrupted. Then the loop does wait for the disk: memory is short."""


class Interruptible:
    """Work that may be interrupted because bytes are not in memory; a base for who keeps how far it is."""

    __slots__ = ("_node", "_warmings")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._warmings = 0

    def attempt(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. Raises NotCachedError where it would have to wait, unless that was so too often."""
        if self._warmings >= MAX_WARMINGS:
            return work()
        with no_waiting():
            return work()

    def warm(self, missing: NotCachedError, go_on: Callable[[], None]) -> None:
        """Have what is missing read, then call `go_on`."""
        self._warmings += 1

        def on_warm(result: object) -> None:
            if isinstance(result, BaseException):
                self._warmings = MAX_WARMINGS  # The disk fails: the read itself will tell.
            go_on()

        self._node.blocking.run(missing.warm, on_warm)


def answer_without_waiting(
    node: Node, request: Request, work: Callable[[], Message], failed: Callable[[], Message]
) -> Message | Outcome:
    """Return what `work` returns, or see to it that the request gets it later; `failed` makes the answer if it raises then."""
    try:
        with no_waiting():
            return work()
    except NotCachedError as missing:
        later = _Later(node, request, work, failed)
        later.warm(missing, later.go_on)
        return Outcome.LATER


class _Later(Interruptible):
    """The rest of a request's work."""

    __slots__ = ("_failed", "_is_gone", "_request", "_work")

    def __init__(self, node: Node, request: Request, work: Callable[[], Message], failed: Callable[[], Message]) -> None:
        super().__init__(node)
        self._request = request
        self._work = work
        self._failed = failed
        self._is_gone = False
        request.when_gone(self._on_gone)

    def _on_gone(self) -> None:
        self._is_gone = True

    def go_on(self) -> None:
        if self._is_gone:
            return
        try:
            answer = self.attempt(self._work)
        except NotCachedError as missing:
            self.warm(missing, self.go_on)
            return
        except Exception:
            logger.exception("a request of %s failed", self._request)
            answer = self._failed()
        self._request.respond(answer)
