"""FindCoordinator (10): who keeps a group, or a transactional id.

Share groups are COORDINATOR_NOT_AVAILABLE, as in Kafka 3.9 while they are not configured.

A broker that is alone keeps all of them. The topic that they are kept in is made when somebody first asks, and is there at once.
In a cluster who leads the partition of the group or id is its coordinator; COORDINATOR_NOT_AVAILABLE is answered while nobody
does, and until the controller has made the topic.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelog.broker.api import Api
from tidelog.broker.server.request import Request
from tidelog.broker.server.slices import Elsewhere, Until, Work, slowly
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.broker.state_log import StateLog

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
    log = {GROUP: node.groups.log, TRANSACTION: node.transactions.log}.get(message.key_type)
    if log is None:
        code, reason = _refusal(message.key_type, request.api_version)
    else:
        code, reason = (yield from _there(node, log)), ""
    found = yield from slowly((_coordinator(node, request, log, key, code, reason) for key in keys), 64)
    if is_batched:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode(one.error_code).name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _refusal(key_type: int, version: int) -> tuple[ErrorCode, str]:
    if key_type == SHARE:
        return (ErrorCode.INVALID_REQUEST if version < _FIRST_WITH_SHARES else ErrorCode.COORDINATOR_NOT_AVAILABLE), ""
    return ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}"


def _there(node: Node, log: StateLog) -> Generator[Elsewhere | Until | None, Any, ErrorCode]:
    """Have the topic made where it is missing: here, or by the controller, who is not waited for."""
    if node.topic_creation is None:
        return (yield from log.ensuring())
    if node.topics.get(log.topic) is None:
        node.topic_creation.ask_own(log.topic)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE


def _coordinator(node: Node, request: Request, log: StateLog | None, key: str, code: ErrorCode, reason: str) -> Coordinator:
    if log is None or code:
        return Coordinator(key, -1, "", -1, code, reason)
    broker = node.brokers.find(node.topics.leader_of(log.topic, log.partition_of(key)), request.listener)
    if broker is None:
        return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    return Coordinator(key, broker.node_id, broker.host, broker.port, code, reason)


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, SERVED, handle)
