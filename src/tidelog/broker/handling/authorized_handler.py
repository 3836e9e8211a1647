"""Runs an API's access check before its handler. The handler does not see refused elements. Their errors are added to its
response.
"""

from __future__ import annotations

from types import GeneratorType
from typing import Any, cast

from tidelog.broker.authorization.permissions import Permissions
from tidelog.broker.handling.access import Amend, Asker, Gate, amended
from tidelog.broker.handling.api import Api, Handler
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Answer, Outcome, Request, Wide
from tidelog.broker.requests.slices import Work
from tidelog.wire.codec import Message


class Checked:
    """A request that another thread has already checked, with the result of the check."""

    __slots__ = ("message", "verdict")

    def __init__(self, message: Message, verdict: Message | Outcome | Amend | None) -> None:
        self.message = message
        self.verdict = verdict


class AuthorizedHandler:
    """Handles an API's requests for authorized clients."""

    def __init__(self, handle: Handler, gate: Gate, permissions: Permissions) -> None:
        self._handle = handle
        self._gate = gate
        self._permissions = permissions

    @classmethod
    def of(cls, api: Api, permissions: Permissions | None) -> Handler:
        """Return an `AuthorizedHandler`, or `handle` itself if the API has no check."""
        gate = api.access.gate
        return api.handle if permissions is None or gate is None else cls(api.handle, gate, permissions)

    def check(self, node: Node, message: Message, request: Request) -> Checked:
        """Check a request, on any thread. The returned `Checked` must then be handled in place of the request."""
        return Checked(message, self._gate(Asker(node, self._permissions, request), message))

    def __call__(self, node: Node, message: Any, request: Request) -> Answer | Work:
        """Handle a request. Check it first, unless that was done before."""
        if type(message) is Checked:
            verdict, message = message.verdict, message.message
        else:
            verdict = self._gate(Asker(node, self._permissions, request), message)
        if verdict is None:
            return self._handle(node, message, request)
        if not callable(verdict):
            return verdict
        return amending(self._handle, node, message, request, verdict)


def amending(handle: Handler, node: Node, message: Any, request: Request, amend: Amend) -> Answer | Work:
    """Call the handler and amend its response, whether it returns the response or sends it later."""
    answer = handle(node, message, cast("Request", AmendedRequest(request, amend)))
    if isinstance(answer, GeneratorType):
        return _amended_work(answer, amend)
    return amended(amend, cast("Answer", answer))


def _amended_work(work: Work, amend: Amend) -> Work:
    return amended(amend, (yield from work))


class AmendedRequest:
    """A request that amends its response before sending it. Otherwise it behaves like the wrapped request."""

    def __init__(self, request: Request, amend: Amend) -> None:
        self._request = request
        self._amend = amend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def __str__(self) -> str:
        return str(self._request)

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        """Amend a delayed response and send it."""
        self._request.respond(amended(self._amend, response), is_wide=is_wide)
