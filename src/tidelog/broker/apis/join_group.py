"""JoinGroup (11): adds a member to a group, or lets a known member rejoin.

`coordinators.groups.joining` lists the rules, including which requests wait. Only the leader's response contains the members and
their metadata.
More than `MAX_PROTOCOLS` protocols get INCONSISTENT_GROUP_PROTOCOL, because each new generation compares the protocols of all
members.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.consumer_group_heartbeat import may_describe
from tidelog.broker.coordinators.groups.delayed_response import DelayedResponse
from tidelog.broker.coordinators.groups.group import Joining, JoinResult
from tidelog.broker.coordinators.groups.joining import join
from tidelog.broker.handling.access import Access, Asker
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.listeners import java_address
from tidelog.broker.requests.request import Outcome, Request
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

MAX_PROTOCOLS = 100
"""The most protocols that a member may list. Clients send one for each assignor, rarely more than three."""

_FIRST_WITH_MEMBER_ID = 4
_FIRST_WITH_NO_PROTOCOL = 7
_FIRST_WITH_SKIPPING = 9


def _gate(asker: Asker, message: JoinGroupRequest) -> JoinGroupResponse | None:
    if asker.may(Operation.READ, ResourceType.GROUP, message.group_id):
        return None
    return _response(asker.request.api_version, JoinResult("", asker.code(ResourceType.GROUP)))


ACCESS = Access("READ on GROUP (group_id)", _gate)


def handle(node: Node, message: JoinGroupRequest, request: Request) -> JoinGroupResponse | Outcome:
    """Add or update the member. The response may wait until the next generation begins."""
    version = request.api_version
    code = node.groups.code_for(message.group_id) if message.group_id else ErrorCode.INVALID_GROUP_ID
    if code:
        return _response(version, JoinResult(message.member_id, code))
    if len(message.protocols) > MAX_PROTOCOLS:
        return _response(version, JoinResult(message.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    protocols: dict[str, bytes] = {}
    for protocol in message.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)

    def refused(code: ErrorCode) -> JoinGroupResponse:
        return _response(version, JoinResult("", code))

    waiting = DelayedResponse(request, node.groups.log, node.slices, message.group_id, partial(_response, version), refused)
    joining = Joining(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        client_id=request.client_id or "",
        # As Java writes an address without a host name. The text is stored, and returned by DescribeGroups.
        client_host=f"/{java_address(request.peer_host)}",
        rebalance_timeout_ms=message.rebalance_timeout_ms if version else message.session_timeout_ms,
        session_timeout_ms=message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=protocols,
        reason=message.reason or "no reason given",
        is_member_id_required=version >= _FIRST_WITH_MEMBER_ID and message.group_instance_id is None,
        can_skip_assignment=version >= _FIRST_WITH_SKIPPING,
        answer=waiting.answer,
        may_describe=may_describe(node, request),
    )
    result = join(node.groups, message.group_id, joining)
    return waiting.later() if result is None else _response(version, result)


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    protocol = result.protocol_name
    members = []
    if result.members and protocol is not None:
        members = [
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.protocols[protocol])
            for member in result.members
        ]
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name="" if protocol is None and version < _FIRST_WITH_NO_PROTOCOL else protocol,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=members,
    )


API = Api(JoinGroupRequest, JoinGroupResponse, Versions(0, 9), ACCESS, by_groups(handle))
