"""ListGroups (16): lists all groups.

State and type filters ignore case; an empty filter matches all. While groups are being loaded, the groups loaded so far are
returned with COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.handling.access import Access, may
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request, Wide
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import AT_ONCE
from tidelog.groups.modern_groups import CLASSIC, CONSUMER
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ACCESS = Access("DESCRIBE on CLUSTER for all groups, else on each GROUP: groups without it are left out")


def handle(node: Node, message: ListGroupsRequest, request: Request) -> Work:
    sees_all = may(node, request, Operation.DESCRIBE, ResourceType.CLUSTER, log_denied=False)
    states = {state.lower() for state in message.states_filter}
    types = {kind.lower() for kind in message.types_filter}
    listed: list[ListedGroup] = []
    for count, group in enumerate(list(node.groups.all())):
        if (
            (not states or group.state_name.lower() in states)
            and (not types or _kind(group) in types)
            and (sees_all or may(node, request, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, log_denied=False))
        ):
            protocol_type = group.protocol_type if group.consumer is None else PROTOCOL_TYPE
            listed.append(ListedGroup(group.group_id, protocol_type or "", group.state_name, _kind(group)))
        if count % 64 == 63:
            yield None
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if node.groups.log.is_loading else ErrorCode.NONE
    response = ListGroupsResponse(error_code=code, groups=listed)
    return Wide(response) if len(listed) > AT_ONCE else response


def _kind(group: Group) -> str:
    return CLASSIC if group.consumer is None else CONSUMER


API = Api(ListGroupsRequest, ListGroupsResponse, Versions(0, 5), ACCESS, handle)
