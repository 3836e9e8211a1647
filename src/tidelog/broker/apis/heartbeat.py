"""Heartbeat (12): keeps a member's session alive.

REBALANCE_IN_PROGRESS tells the member to rejoin. While groups are being loaded, every heartbeat succeeds, because a broker's
restart must not make members rejoin.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.coordinators.groups.joining import heartbeat
from tidelog.broker.handling.access import Right, allows, at_top, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups, usual_by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

ACCESS = whole(Right(Operation.READ, ResourceType.GROUP, "group_id"), refused=at_top(HeartbeatResponse))


def handle(node: Node, message: HeartbeatRequest, request: Request) -> HeartbeatResponse:
    return HeartbeatResponse(
        0, _code(node, message.group_id, message.generation_id, message.member_id, message.group_instance_id)
    )


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | None:
    """Answer an authorized heartbeat like `handle`. Return None if the client is not authorized."""
    if not allows(node, request, (Operation.READ, ResourceType.GROUP, row[:1])):
        return None
    return [0, _code(node, *row)]


def _code(node: Node, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    code = node.groups.code_for(group_id)
    if code:
        return ErrorCode.NONE if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
    group = node.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return heartbeat(node.groups, group, member_id, group_instance_id, generation_id)


API = Api(
    HeartbeatRequest,
    HeartbeatResponse,
    Versions(0, 4),
    ACCESS,
    by_groups(handle, waits=False),
    usual_by_groups(answer_usual, waits=False),
)
