"""FindCoordinator (10): returns the coordinator of a group or transactional id.

Share groups get COORDINATOR_NOT_AVAILABLE, as in Kafka 3.9 without share groups enabled.

A standalone broker is the coordinator of all groups and transactional ids. The first request is answered after the internal topic
has been created. In a cluster the coordinator is the leader of the internal topic's partition that stores the group or
transactional id. COORDINATOR_NOT_AVAILABLE is returned while the partition has no leader, and until the controller has created
the topic.
"""

from __future__ import annotations

from tidelog.broker.coordinators.state_log import StateLog
from tidelog.broker.handling.access import Access, Amend, Asker, appending
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2

_FIRST_BATCHED = 4
_FIRST_WITH_SHARES = 6


_KINDS = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def _gate(asker: Asker, message: FindCoordinatorRequest) -> FindCoordinatorResponse | Amend | None:
    version = asker.request.api_version
    kind = _KINDS.get(message.key_type)
    keys = message.coordinator_keys if version >= _FIRST_BATCHED else [message.key]
    if kind is not None:
        denied = {key for key in set(keys) if not asker.may(Operation.DESCRIBE, kind, key)}
    elif message.key_type == SHARE and version >= _FIRST_WITH_SHARES and not asker.may_cluster(Operation.CLUSTER_ACTION):
        kind, denied = ResourceType.CLUSTER, set(keys)
    else:
        return None
    if not denied:
        return None
    code = asker.code(kind)
    if version < _FIRST_BATCHED:
        return FindCoordinatorResponse(error_code=code, error_message=code.name, node_id=-1, host="", port=-1)
    answers = [Coordinator(key, -1, "", -1, code) for key in keys if key in denied]
    message.coordinator_keys = [key for key in keys if key not in denied]
    return appending("coordinators", answers) if message.coordinator_keys else FindCoordinatorResponse(coordinators=answers)


ACCESS = Access(
    "DESCRIBE on each GROUP or TRANSACTIONAL_ID; for share groups CLUSTER_ACTION on CLUSTER",
    _gate,
)


def handle(node: Node, message: FindCoordinatorRequest, request: Request) -> Work:
    code, reason, log = ErrorCode.NONE, "", None
    if message.key_type == GROUP:
        log = node.groups.log
    elif message.key_type == TRANSACTION:
        log = node.transactions.log
    else:
        code, reason = _refusal(message.key_type, request.api_version)
    if log is not None and not log.is_there:
        code = yield from log.ensuring()
    if request.api_version >= _FIRST_BATCHED:
        found = (_coordinator(node, request, log, key, code, reason) for key in message.coordinator_keys)
        return FindCoordinatorResponse(coordinators=(yield from slowly(found, 8)))
    one = _coordinator(node, request, log, message.key, code, reason)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or (ErrorCode(one.error_code).name if one.error_code else "NONE"),
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _refusal(key_type: int, version: int) -> tuple[ErrorCode, str]:
    if key_type == SHARE:
        return (ErrorCode.INVALID_REQUEST if version < _FIRST_WITH_SHARES else ErrorCode.COORDINATOR_NOT_AVAILABLE), ""
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}"


def _coordinator(node: Node, request: Request, log: StateLog | None, key: str, code: ErrorCode, reason: str) -> Coordinator:
    if log is None or code:
        return Coordinator(key, -1, "", -1, code, reason)
    broker = node.brokers.find(log.leader_of(key), request.listener)
    if broker is None:
        return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    return Coordinator(key, broker.node_id, broker.host, broker.port, code, reason)


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, Versions(0, 6), ACCESS, handle)
