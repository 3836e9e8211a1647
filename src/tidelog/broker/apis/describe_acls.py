"""DescribeAcls (29): the access control entries that match a filter (KIP-140).

Alone a broker has no authorizer: SECURITY_DISABLED, as Kafka without one. A member shows those in the metadata of the cluster.

| filter | matches |
|---|---|
| any (1) of types, operations, permissions; null of principals, hosts | all |
| a name, of pattern type any (1), literal or prefixed | patterns of that name |
| a name, of pattern type match (2) | all patterns that a resource of that name falls under: its own, `*`, its prefixes |
| unknown (0) of anything | INVALID_REQUEST |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api
from tidelog.broker.server.request import Request
from tidelog.broker.server.slices import Work
from tidelog.metadata.records import AccessControlEntryRecord
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_acls import (
    LITERAL,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 3)
"""What each version changed: the table of `tidelog.wire.messages.describe_acls`."""

UNKNOWN = 0
ANY = 1
MATCH = 2
PREFIXED = 4
WILDCARD = "*"


def handle(node: Node, message: DescribeAclsRequest, request: Request) -> Work:
    return _work(node, message)


def _work(node: Node, message: DescribeAclsRequest) -> Work:
    if node.plane is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    kinds = message.resource_type_filter, message.pattern_type_filter, message.operation, message.permission_type
    if UNKNOWN in kinds or min(kinds) < 0:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="the filter has an element that is not known"
        )
    found: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for count, one in enumerate(list(node.image.acls.values())):
        if _matches_resource(message, one) and _matches_entry(message, one):
            key = one.resource_type, one.resource_name, one.pattern_type
            resource = found.get(key)
            if resource is None:
                resource = found[key] = DescribeAclsResource(*key)
            resource.acls.append(AclDescription(one.principal, one.host, one.operation, one.permission_type))
        if count % 256 == 255:
            yield None
    return DescribeAclsResponse(resources=list(found.values()))


def _matches_resource(wanted: DescribeAclsRequest, acl: AccessControlEntryRecord) -> bool:
    if wanted.resource_type_filter not in (ANY, acl.resource_type):
        return False
    name, pattern = wanted.resource_name_filter, wanted.pattern_type_filter
    if pattern not in (ANY, MATCH, acl.pattern_type):
        return False
    if name is None:
        return True
    if pattern != MATCH:
        return name == acl.resource_name
    if acl.pattern_type == LITERAL:
        return acl.resource_name in (name, WILDCARD)
    return acl.pattern_type == PREFIXED and name.startswith(acl.resource_name)


def _matches_entry(wanted: DescribeAclsRequest, acl: AccessControlEntryRecord) -> bool:
    return (
        wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission_type in (ANY, acl.permission_type)
    )


API = Api(DescribeAclsRequest, DescribeAclsResponse, SERVED, handle)
