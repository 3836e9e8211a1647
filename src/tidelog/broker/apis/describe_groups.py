"""DescribeGroups (15): returns groups' states and members.

An unknown group, or a consumer group of the new protocol (KIP-848), is reported as Dead, without an error. Metadata, assignments
and the protocol are returned for stable groups only.
"""

from __future__ import annotations

from tidelog.broker.apis.metadata import NOT_ASKED_FOR
from tidelog.broker.coordinators.groups.group import GroupState, Member
from tidelog.broker.handling.access import each, operations_of
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

ACCESS = each(
    Operation.DESCRIBE,
    ResourceType.GROUP,
    of="groups",
    refused=lambda name, code: DescribedGroup(error_code=code, group_id=name),
    response=DescribeGroupsResponse,
    into="groups",
)


MEMBER_BYTES = 100
"""The size in bytes of a member's fields without the strings that can be long."""


def handle(node: Node, message: DescribeGroupsRequest, request: Request) -> Work:
    """Describe the groups in the order of the request, repeated ones too, until the response is full."""
    room = AnswerRoom()

    def described(group_id: str) -> DescribedGroup:
        if room.is_used_up:
            refusal = no_room()
            return DescribedGroup(error_code=refusal.code, error_message=refusal.reason, group_id=group_id)
        operations = NOT_ASKED_FOR
        if message.include_authorized_operations:
            operations = operations_of(node, request, ResourceType.GROUP, group_id)
        group = _described(node, group_id, operations)
        room.use(sum(map(_size, group.members)))
        return group

    groups = yield from slowly(map(described, message.groups), 4)
    yield from discarded(message)
    return DescribeGroupsResponse(groups=groups)


def _described(node: Node, group_id: str, operations: int) -> DescribedGroup:
    code = node.groups.code_for(group_id)
    if code:
        return DescribedGroup(error_code=code, group_id=group_id)
    group = node.groups.get(group_id)
    if group is None or group.consumer is not None:  # ConsumerGroupDescribe describes consumer groups.
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value, authorized_operations=operations)
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_member(member, protocol) for member in group.members.values()],
        authorized_operations=operations,
    )


def _size(member: DescribedGroupMember) -> int:
    """Return the approximate size of a member in bytes. Only the strings that can be long are measured."""
    return len(member.member_id) + len(member.member_metadata) + len(member.member_assignment) + MEMBER_BYTES


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(protocol, b"") if protocol is not None else b"",
        member_assignment=member.assignment if protocol is not None else b"",
    )


API = Api(DescribeGroupsRequest, DescribeGroupsResponse, Versions(0, 5), ACCESS, by_groups(handle, waits=False))
