"""Answers that need bytes from a disk, without a wait on the loop: what is missing is read on another thread, then work goes on.

`work` is called until it is done. It does what it can and keeps how far it is; where bytes are missing, `NotCachedError` comes
out of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.broker.api import Outcome, Request
from tidelog.log.patience import NotCachedError, no_waiting

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.wire.codec import Message

logger = logging.getLogger("tidelog.broker")

MAX_WARMINGS = 64
"""So often one request is interrupted. Then the loop does wait for the disk: memory is short."""


def answer_without_waiting(
    node: Node, request: Request, work: Callable[[], Message], failed: Callable[[], Message]
) -> Message | Outcome:
    """Return what `work` returns, or see to it that the request gets it later; `failed` makes the answer if it raises then."""
    try:
        with no_waiting():
            return work()
    except NotCachedError as missing:
        _Later(node, request, work, failed).warm(missing)
        return Outcome.LATER


class _Later:
    """The rest of a request's work."""

    def __init__(self, node: Node, request: Request, work: Callable[[], Message], failed: Callable[[], Message]) -> None:
        self._node = node
        self._request = request
        self._work = work
        self._failed = failed
        self._warmings = 0
        self._is_gone = False
        request.when_gone(self._on_gone)

    def warm(self, missing: NotCachedError) -> None:
        self._warmings += 1
        self._node.blocking.run(missing.warm, self._on_warm)

    def _on_gone(self) -> None:
        self._is_gone = True

    def _on_warm(self, result: object) -> None:
        if self._is_gone:
            return
        try:
            if self._warmings > MAX_WARMINGS or isinstance(result, BaseException):
                answer = self._work()  # If the disk fails, this is what tells it.
            else:
                with no_waiting():
                    answer = self._work()
        except NotCachedError as missing:
            self.warm(missing)
            return
        except Exception:
            logger.exception("a request of %s failed", self._request)
            answer = self._failed()
        self._request.respond(answer)
