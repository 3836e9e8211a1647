"""LeaveGroup (13): a member goes, and the others need not wait for its session to end. Versions 0 to 5.

| version | change |
|---|---|
| 0 | one member, by its id; its error is the answer's |
| 1 | throttle time |
| 2 | throttled after the answer (KIP-219) |
| 3 | several members, each with an error of its own; static ones by their instance id alone (KIP-345) |
| 4 | flexible |
| 5 | the reason (KIP-800) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.coordinated import by_groups
from tidelog.broker.groups.group import GroupState
from tidelog.broker.groups.joining import leave
from tidelog.broker.groups.results import Leaving
from tidelog.broker.server.slices import Work
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

_FIRST_BATCHED = 3


def handle(node: Node, message: LeaveGroupRequest, request: Request) -> Work:
    """Have the members leave, one after the other."""
    code = node.groups.code_for(message.group_id) if message.group_id else ErrorCode.INVALID_GROUP_ID
    if code:
        return LeaveGroupResponse(error_code=code)
    group = node.groups.get(message.group_id)
    if group is not None and group.state is GroupState.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    is_batched = request.api_version >= _FIRST_BATCHED
    answers = []
    for count, one in enumerate(message.members if is_batched else [MemberIdentity(message.member_id)]):
        if count % 16 == 15:
            yield None
            group = node.groups.get(message.group_id)
        if group is None or group.state is GroupState.DEAD:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            code = leave(node, group, Leaving(one.member_id, one.group_instance_id, one.reason or "no reason given"))
        answers.append(MemberResponse(one.member_id, one.group_instance_id, code))
    if is_batched:
        return LeaveGroupResponse(members=answers)
    return LeaveGroupResponse(error_code=answers[0].error_code)


API = Api(LeaveGroupRequest, LeaveGroupResponse, 0, 5, by_groups(handle))
