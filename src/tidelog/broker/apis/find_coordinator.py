"""FindCoordinator (10): who keeps a group, or a transactional id.

Share groups are COORDINATOR_NOT_AVAILABLE, as in Kafka 3.9 while they are not configured.

This broker keeps all of them. The topic that they are kept in is made when somebody first asks, and is there at once; Kafka
answers COORDINATOR_NOT_AVAILABLE until its controller has made it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelog.broker.api import Api, Request
from tidelog.broker.server.slices import Elsewhere, Until, Work, slowly
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 6)
"""What each version changed: the table of `tidelog.wire.messages.find_coordinator`."""

GROUP = 0
TRANSACTION = 1
SHARE = 2

_FIRST_BATCHED = 4
_FIRST_WITH_SHARES = 6


def handle(node: Node, message: FindCoordinatorRequest, request: Request) -> Work:
    """Name this broker, or say why not yet."""
    return _work(node, message, request)


def _work(node: Node, message: FindCoordinatorRequest, request: Request) -> Work:
    is_batched = request.api_version >= _FIRST_BATCHED
    keys = message.coordinator_keys if is_batched else [message.key]
    code, reason = yield from _look(node, message.key_type, request.api_version)
    found = yield from slowly((_coordinator(node, request, key, code, reason) for key in keys), 64)
    if is_batched:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=code, error_message=reason or code.name, node_id=one.node_id, host=one.host, port=one.port
    )


def _look(node: Node, key_type: int, version: int) -> Generator[Elsewhere | Until | None, Any, tuple[ErrorCode, str]]:
    if key_type == GROUP:
        return (yield from node.groups.log.ensuring()), ""
    if key_type == TRANSACTION:
        return (yield from node.transactions.log.ensuring()), ""
    if key_type == SHARE:
        return (ErrorCode.INVALID_REQUEST if version < _FIRST_WITH_SHARES else ErrorCode.COORDINATOR_NOT_AVAILABLE), ""
    return ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}"


def _coordinator(node: Node, request: Request, key: str, code: ErrorCode, reason: str) -> Coordinator:
    if code:
        return Coordinator(key, -1, "", -1, code, reason)
    listener = request.listener
    return Coordinator(key, node.node_id, listener.advertised_host, listener.advertised_port, code, reason)


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, SERVED, handle)
