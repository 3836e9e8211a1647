"""DeleteGroups (42): removes groups without members, and their committed offsets.

A group with members gets NON_EMPTY_GROUP, and an unknown group gets GROUP_ID_NOT_FOUND. A group that is named twice gets one
result.
"""

from __future__ import annotations

from tidelog.broker.coordinators.groups.groups import Removal
from tidelog.broker.handling.access import each
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

ACCESS = each(
    Operation.DELETE,
    ResourceType.GROUP,
    of="groups_names",
    refused=DeletableGroupResult,
    response=DeleteGroupsResponse,
    into="results",
)


def handle(node: Node, message: DeleteGroupsRequest, request: Request) -> Work:
    results: dict[str, DeletableGroupResult] = {}
    for count, group_id in enumerate(message.groups_names):
        if group_id not in results:
            code = yield from _delete(node, group_id)
            results[group_id] = DeletableGroupResult(group_id, code)
        if count % 4 == 3:
            yield None
    return DeleteGroupsResponse(results=list(results.values()))


def _delete(node: Node, group_id: str) -> Removal:
    group = node.groups.existing(group_id)
    if isinstance(group, ErrorCode):
        return group
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    return (yield from node.groups.remove(group))


API = Api(DeleteGroupsRequest, DeleteGroupsResponse, Versions(0, 2), ACCESS, by_groups(handle))
