"""Delayed responses to JoinGroup and SyncGroup, which wait for other members.

One change of a group can complete a thousand responses, so they are sent in slices. If the client disconnects before its
response is sent, the response is lost, but as in Kafka its member stays until the session ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from tidelog.broker.coordinators.append_refusals import refusal_of
from tidelog.broker.coordinators.groups.group import JoinResult, SyncResult
from tidelog.broker.coordinators.state_log import StateLog
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Slices
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode

R = TypeVar("R", JoinResult, SyncResult)

logger = logging.getLogger("tidelog.broker")


class DelayedResponse(Generic[R]):
    """A request that waits for its result. `response_of` makes the response from the result; `refused` makes an error response
    from a code.

    The response is sent once the group's records are committed. If they cannot be committed, the client gets an error, because
    another broker is then the coordinator.
    """

    __slots__ = ("_group_id", "_is_answered", "_log", "_refused", "_request", "_response_of", "_slices")

    def __init__(
        self,
        request: Request,
        log: StateLog,
        slices: Slices,
        group_id: str,
        response_of: Callable[[R], Message],
        refused: Callable[[ErrorCode], Message],
    ) -> None:
        self._log = log
        self._slices = slices
        self._group_id = group_id
        self._request = request
        self._response_of: Callable[[R], Message] = response_of
        self._refused = refused
        self._is_answered = False

    def answer(self, result: R) -> None:
        """Send the response. This never raises an error, because other members must still get their responses."""
        self._is_answered = True
        try:
            response = self._response_of(result)
            if result.error_code or not self._log.may_be_uncommitted:
                self._slices.soon(partial(self._send, response))
            else:
                self._log.when_committed(self._log.partition_of(self._group_id), partial(self._committed, response))
        except Exception:
            logger.exception("a request of %s failed", self._request)
            self._slices.soon(partial(self._send, self._refused(ErrorCode.UNKNOWN_SERVER_ERROR)))

    def _committed(self, response: Message, code: ErrorCode) -> None:
        answer: Message | Outcome = response
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            answer = Outcome.CLOSE
        elif code:
            answer = self._refused(refusal_of(code))
        self._slices.soon(partial(self._send, answer))

    def _send(self, response: Message | Outcome) -> None:
        try:
            self._request.respond(response)
        except Exception:
            logger.exception("a request of %s failed", self._request)
            self._request.respond(self._refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def later(self) -> Outcome:
        """Return the response if it is already complete, otherwise LATER. The handler returns this."""
        if not self._is_answered:
            self._request.when_gone(_abandon)
        return Outcome.LATER


def _abandon() -> None:
    """Do nothing: the client has disconnected, but its member's session continues."""
