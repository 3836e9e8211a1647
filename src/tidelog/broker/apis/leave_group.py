"""LeaveGroup (13): removes members from a group before their sessions time out."""

from __future__ import annotations

from tidelog.broker.coordinators.groups.classic_requests import leave as leave_consumer_group
from tidelog.broker.coordinators.groups.group import GroupState, Leaving
from tidelog.broker.coordinators.groups.joining import leave
from tidelog.broker.handling.access import Right, at_top, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

ACCESS = whole(Right(Operation.READ, ResourceType.GROUP, "group_id"), refused=at_top(LeaveGroupResponse))

_FIRST_BATCHED = 3


def handle(node: Node, message: LeaveGroupRequest, request: Request) -> Work:
    """Remove each member that the request names, and return a result for each."""
    code = node.groups.code_for(message.group_id) if message.group_id else ErrorCode.INVALID_GROUP_ID
    if code:
        return LeaveGroupResponse(error_code=code)
    group = node.groups.get(message.group_id)
    if group is not None and group.state is GroupState.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    is_batched = request.api_version >= _FIRST_BATCHED
    named = message.members if is_batched else [MemberIdentity(message.member_id)]
    answers = []
    if group is not None and group.consumer is not None:
        leaving = [Leaving(one.member_id, one.group_instance_id, one.reason or "no reason given") for one in named]
        codes = leave_consumer_group(node.groups.consumers, group, leaving)
        answers = [MemberResponse(one.member_id, one.group_instance_id, code) for one, code in zip(named, codes, strict=True)]
        named = []
    for count, one in enumerate(named):
        if count % 16 == 15:
            yield None
            group = node.groups.get(message.group_id)
        if group is None or group.state is GroupState.DEAD:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            code = leave(node.groups, group, Leaving(one.member_id, one.group_instance_id, one.reason or "no reason given"))
        answers.append(MemberResponse(one.member_id, one.group_instance_id, code))
    if is_batched:
        return LeaveGroupResponse(members=answers)
    return LeaveGroupResponse(error_code=answers[0].error_code)


API = Api(LeaveGroupRequest, LeaveGroupResponse, Versions(0, 5), ACCESS, by_groups(handle))
