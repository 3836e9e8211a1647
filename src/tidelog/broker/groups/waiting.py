"""A request that is answered once other members have done something: JoinGroup, SyncGroup.

One change of a group answers a thousand of them: they are sent in slices.

Its client may go meanwhile. The member stays, as in Kafka, until its session ends; what it would have got is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.broker.api import Outcome

if TYPE_CHECKING:
    from tidelog.broker.api import Request
    from tidelog.broker.node import Node
    from tidelog.wire.codec import Message

R = TypeVar("R")

logger = logging.getLogger("tidelog.broker")


class Waiting(Generic[R]):
    """A request, and what makes a response of its result; `failed` is the response if that raises.

    What the log keeps of the group is on the disk before, where it is to be flushed.
    """

    __slots__ = ("_failed", "_group_id", "_is_answered", "_log", "_request", "_response_of", "_slices")

    def __init__(self, request: Request, node: Node, group_id: str, response_of: Callable[[R], Message], failed: Message) -> None:
        self._log = node.groups.log
        self._slices = node.slices
        self._group_id = group_id
        self._request = request
        self._response_of = response_of
        self._failed = failed
        self._is_answered = False

    def answer(self, result: R) -> None:
        """Answer it. Raises nothing: the other members have to be answered as well."""
        self._is_answered = True
        try:
            response = self._response_of(result)
            if not self._log.is_flushing:
                self._slices.soon(partial(self._send, response))
            else:
                self._log.when_flushed(self._log.partition_of(self._group_id), partial(self._flushed, response))
        except Exception:
            logger.exception("a request of %s failed", self._request)
            self._slices.soon(partial(self._send, self._failed))

    def _flushed(self, response: Message, has_failed: bool) -> None:
        self._slices.soon(partial(self._send, Outcome.CLOSE if has_failed else response))

    def _send(self, response: Message | Outcome) -> None:
        try:
            self._request.respond(response)
        except Exception:
            logger.exception("a request of %s failed", self._request)
            self._request.respond(self._failed)

    def later(self) -> Outcome:
        """Return what its handler returns, now that it waits, or has been answered already."""
        if not self._is_answered:
            self._request.when_gone(_abandon)
        return Outcome.LATER


def _abandon() -> None:
    """Nobody waits any more; the session goes on."""
