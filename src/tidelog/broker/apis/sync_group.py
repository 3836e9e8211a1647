"""SyncGroup (14): the leader sends the generation's assignments, and each member receives its own.

From version 5 on, the protocol type and name in the request must be those of the generation. Followers wait for the leader's
assignments, which are stored before any response is sent. While groups are being loaded, members get REBALANCE_IN_PROGRESS and
then rejoin.
"""

from __future__ import annotations

from tidelog.broker.coordinators.groups.delayed_response import DelayedResponse
from tidelog.broker.coordinators.groups.group import Syncing, SyncResult
from tidelog.broker.coordinators.groups.joining import sync
from tidelog.broker.handling.access import Right, at_top, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ACCESS = whole(Right(Operation.READ, ResourceType.GROUP, "group_id"), refused=at_top(SyncGroupResponse))

_FIRST_WITH_PROTOCOL = 5


def handle(node: Node, message: SyncGroupRequest, request: Request) -> SyncGroupResponse | Outcome | Work:
    """Return the member's assignment once the leader has sent it."""
    if len(message.assignments) > AT_ONCE:
        return _slowly(node, message, request)
    return _handle(node, message, request, {one.member_id: one.assignment for one in message.assignments})


def _slowly(node: Node, message: SyncGroupRequest, request: Request) -> Work:
    assignments: dict[str, bytes] = {}
    for count, one in enumerate(message.assignments):
        assignments[one.member_id] = one.assignment
        if count % 128 == 127:
            yield None
    answer = _handle(node, message, request, assignments)
    yield from discarded(None, assignments)
    return answer


def _handle(
    node: Node, message: SyncGroupRequest, request: Request, assignments: dict[str, bytes]
) -> SyncGroupResponse | Outcome:
    if request.api_version >= _FIRST_WITH_PROTOCOL and (message.protocol_type is None or message.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    code = node.groups.code_for(message.group_id) if message.group_id else ErrorCode.INVALID_GROUP_ID
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    if code:
        return SyncGroupResponse(error_code=code)
    group = node.groups.get(message.group_id)
    if group is None:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    waiting = DelayedResponse(
        request, node.groups.log, node.slices, message.group_id, _response, lambda code: SyncGroupResponse(error_code=code)
    )
    syncing = Syncing(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation_id=message.generation_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments=assignments,
        answer=waiting.answer,
    )
    result = sync(node.groups, group, syncing)
    return waiting.later() if result is None else _response(result)


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


API = Api(SyncGroupRequest, SyncGroupResponse, Versions(0, 5), ACCESS, by_groups(handle))
