"""A fast path for usual requests: compiled code reads the request into plain lists and writes the response from plain lists.

    dispatcher → MessagePlan.read → the API's `answer_usual` → MessagePlan.write → the connection

No message objects are made for the request, its partitions or the response. An `answer_usual` returns None for any other request,
before it has changed anything. Such a request is decoded and handled as if this module did not exist. So each error is reported
in one place, and the interpreted build, which has no plans, gives the same responses.

The fast path is not used while any quota is set, because responses then contain the throttle time. It is also not used for
requests that an authorizer refuses, for coordinators' requests while records may be uncommitted, and for requests with more than
`MOST_ELEMENTS` elements.
"""

from __future__ import annotations

from tidelog.broker.apis import produce
from tidelog.broker.handling.api import Api, UsualHandler
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.wide_requests import BYTES_AT_ONCE, FEW_BYTES
from tidelog.records.kernel import MessagePlan
from tidelog.wire.codec import Message
from tidelog.wire.usual_messages import plan_of

MOST_ELEMENTS = 128
"""The most elements of a usual request: one or two milliseconds of work."""


class UsualApi:
    """The fast path of one version of an API."""

    __slots__ = ("_answer", "_is_produce", "_request", "_response")

    def __init__(self, answer: UsualHandler, request: MessagePlan, response: MessagePlan, *, is_produce: bool) -> None:
        self._answer = answer
        self._request = request
        self._response = response
        self._is_produce = is_produce

    @classmethod
    def of(cls, api: Api, version: int) -> UsualApi | None:
        """Return the fast path of a version; None if the API has none, and in the interpreted build."""
        if api.answer_usual is None:
            return None
        request, response = plan_of(api.request, version), plan_of(api.response, version)
        if request is None or response is None:
            return None
        return cls(api.answer_usual, request, response, is_produce=api is produce.API)

    def answer(self, node: Node, request: Request, data: memoryview, body: int, end: int) -> bytes | Message | Outcome | None:
        """Answer the request in `data[body:end]`: return the response's frame, or what a handler returns. Return None, before
        anything has changed, if the request is not a usual one.
        """
        if node.quotas.is_active:
            return None
        # In a full round only the smallest requests and single batches are answered; `produce` also defers larger requests.
        if not self._is_produce and (size := end - body) > FEW_BYTES and (node.slices.is_round_full or size > BYTES_AT_ONCE):
            return None
        row = self._request.read(data, body, end, MOST_ELEMENTS)
        if row is None:
            return None
        answer = self._answer(node, request, row)
        return self._response.write(answer, request.correlation_id) if type(answer) is list else answer  # type: ignore[return-value]
