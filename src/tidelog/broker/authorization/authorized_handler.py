"""A handler behind what its API checks: what is refused never comes to it, and its response gets the refusals."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from tidelog.broker.authorization.access import Amend, Asker, Gate, amended
from tidelog.broker.server.request import Outcome, Wide

if TYPE_CHECKING:
    from tidelog.broker.api import Api, Handler
    from tidelog.broker.authorization.permissions import Permissions
    from tidelog.broker.node import Node
    from tidelog.broker.server.request import Answer, Request
    from tidelog.broker.server.slices import Work
    from tidelog.wire.codec import Message


class Checked:
    """A request that was looked at already, where that was done by another thread: with what came of it."""

    __slots__ = ("message", "verdict")

    def __init__(self, message: Message, verdict: Message | Outcome | Amend | None) -> None:
        self.message = message
        self.verdict = verdict


class AuthorizedHandler:
    """Handles requests of an API for those who may."""

    def __init__(self, handle: Handler, gate: Gate, permissions: Permissions) -> None:
        self._handle = handle
        self._gate = gate
        self._permissions = permissions

    @classmethod
    def of(cls, api: Api, permissions: Permissions | None) -> Handler:
        """Return what handles an API's requests: the bare handler where nothing is checked in front of it."""
        gate = api.access.gate
        return api.handle if permissions is None or gate is None else cls(api.handle, gate, permissions)

    def check(self, node: Node, message: Message, request: Request) -> Checked:
        """Look at a request; any thread may. Then it is to be handled."""
        return Checked(message, self._gate(Asker(node, self._permissions, request), message))

    def __call__(self, node: Node, message: Any, request: Request) -> Answer | Work:
        """Handle a request, or one that was looked at."""
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
    """Return what a handler answers, amended, now or later."""
    answer = handle(node, message, cast("Request", AmendedRequest(request, amend)))
    if isinstance(answer, GeneratorType):
        return _amended_work(answer, amend)
    return amended(amend, cast("Answer", answer))


def _amended_work(work: Work, amend: Amend) -> Work:
    return amended(amend, (yield from work))


class AmendedRequest:
    """A request whose response is amended, whenever it comes. All else is the request's own."""

    def __init__(self, request: Request, amend: Amend) -> None:
        self._request = request
        self._amend = amend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def __str__(self) -> str:
        return str(self._request)

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        """Send a response that was put off, amended."""
        self._request.respond(amended(self._amend, response), is_wide=is_wide)
