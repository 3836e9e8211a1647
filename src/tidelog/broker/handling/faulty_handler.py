"""Applies injected faults before a handler: requests are refused like unauthorized ones, but with the fault's error code.

| API | how it fails |
|---|---|
| with an access check (`access`) | the check fails, as if the client were not authorized |
| Metadata, DescribeTopicPartitions | topics in the response get the error code and no partitions |
| Fetch | partition by partition, including those of the session (`fetch_access`) |
| all others | the response gets the error code at the top level, or in each element if there is no top-level code |
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from tidelog.broker.authorization.faults import Fault
from tidelog.broker.handling.access import Amend, Asker
from tidelog.broker.handling.api import Api, Handler
from tidelog.broker.handling.authorized_handler import amending
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Answer, Outcome, Request
from tidelog.broker.requests.slices import Work
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode

_BY_ANSWER = frozenset({"Metadata", "DescribeTopicPartitions"})
_BY_ITSELF = "Fetch"
_WHOLE = frozenset({"AddPartitionsToTxn", "ConsumerGroupHeartbeat", "OffsetDelete", "OffsetFetch"})
"""APIs whose results for one topic depend on other topics or on the whole request, so they cannot fail for one topic alone."""


def fails_by_topic(api: Api) -> bool:
    """Whether requests of an API can fail for one topic alone."""
    return api.name not in _WHOLE and ("each TOPIC" in api.access.what or api.name in _BY_ANSWER)


class FaultyHandler:
    """Handles an API's requests, except those that must fail."""

    def __init__(self, api: Api, handle: Handler, faults: tuple[Fault, ...]) -> None:
        self._api = api
        self._handle = handle
        self._faults = faults

    @classmethod
    def of(cls, api: Api, handle: Handler, faults: tuple[Fault, ...]) -> Handler:
        """Return a `FaultyHandler`, or `handle` itself if there are no faults or the API handles them itself (Fetch)."""
        return cls(api, handle, faults) if faults and api.name != _BY_ITSELF else handle

    def __call__(self, node: Node, message: Any, request: Request) -> Answer | Work:
        """Handle a request, or make it fail. If several faults apply, the oldest of them is used."""
        if self._api.name in _BY_ANSWER:
            return amending(self._handle, node, message, request, _by_answer(self._faults))
        for fault in self._faults:
            verdict = None if fault.is_over else self._verdict(fault, node, message, request)
            if verdict is not None:
                fault.happened()
                if fault.code is None:
                    return Outcome.CLOSE
                return amending(self._handle, node, message, request, verdict) if callable(verdict) else verdict
        return self._handle(node, message, request)

    def _verdict(self, fault: Fault, node: Node, message: Any, request: Request) -> Any:
        """Return the error response, or a function that amends the handler's response; None if the fault does not apply."""
        gate = self._api.access.gate
        if gate is None:
            code = fault.code or ErrorCode.NONE
            if any(field.name == "error_code" for field in self._api.response.FIELDS):
                return self._api.response(error_code=code)
            return partial(_with_code, code)
        asker = _FaultyAsker(fault, node, request)
        verdict = gate(asker, message)
        return verdict if asker.has_denied else None


class _FaultyAsker(Asker):
    """An `Asker` that denies access to everything to which the fault applies."""

    def __init__(self, fault: Fault, node: Node, request: Request) -> None:
        super().__init__(node, node.permissions, request)  # type: ignore[arg-type]
        self._fault = fault
        self.has_denied = False

    def may(self, operation: Operation, kind: ResourceType, name: str, **_: Any) -> bool:
        """Return False if the fault applies to the resource."""
        is_concerned = self._fault.topic is None or (kind is kind.TOPIC and self._fault.concerns(name))
        self.has_denied |= is_concerned
        return not is_concerned

    def may_cluster(self, operation: Operation, *, log_denied: bool = True) -> bool:
        """Return False, so that topics are checked one by one. The result counts as a denial only if the fault applies to all
        topics.
        """
        self.has_denied |= self._fault.topic is None
        return False

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return True if the fault is for a single topic, because all other topics are allowed."""
        return self._fault.topic is not None

    def code(self, kind: ResourceType) -> ErrorCode:
        return self._fault.code or ErrorCode.NONE


def _with_code(code: ErrorCode, response: Any) -> Any:
    """Set the error code of each element in a response that has no top-level error code."""
    for field in response.FIELDS:
        for one in getattr(response, field.name) if field.kind == "array" else ():
            one.error_code = code
    return response


def _by_answer(faults: Iterable[Fault]) -> Amend:
    """Return a function that gives the topics in a response the error code of the fault that applies to them."""

    def amend(response: Any) -> Any:
        if isinstance(response, Outcome):
            return response
        for fault in faults:
            found = {id(one) for one in response.topics if fault.concerns(one.name)}
            if found:
                fault.happened()
                if fault.code is None:
                    return Outcome.CLOSE
                code = fault.code
                # The topics may be cached for later responses, so they are replaced, not changed.
                response.topics = [
                    type(one)(error_code=code, name=one.name, topic_id=one.topic_id) if id(one) in found else one
                    for one in response.topics
                ]
                break
        return response

    return amend
