"""DescribeAcls (29): returns the access control entries that match a filter (KIP-140).

Without an authorizer the answer is SECURITY_DISABLED, as in Kafka, even if the cluster's metadata has entries.

| filter | matches |
|---|---|
| any (1) as type, operation or permission; null as principal or host | all |
| a name with pattern type any (1), literal or prefixed | patterns with exactly that name |
| a name with pattern type match (2) | all patterns that apply to a resource of that name: literal, `*`, prefixes |
| unknown (0) in any field | INVALID_REQUEST |
"""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import vars_of
from tidelog.security.acl import AclFilter, Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ACCESS = whole(cluster(Operation.DESCRIBE), refused=at_top(DescribeAclsResponse))


def handle(node: Node, message: DescribeAclsRequest, request: Request) -> Work:
    permissions = node.permissions
    if permissions is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = AclFilter(*vars_of(message))
    if wanted.is_unknown:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="the filter has an unknown element")
    acls = list(permissions.authorizer.acls.values())
    found: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for count, one in enumerate(acls):
        if wanted.matches(one):
            key = one.resource_type, one.resource_name, one.pattern_type
            resource = found.get(key)
            if resource is None:
                resource = found[key] = DescribeAclsResource(*key)
            resource.acls.append(AclDescription(one.principal, one.host, one.operation, one.permission))
        if count % 256 == 255:
            yield None
    return DescribeAclsResponse(resources=list(found.values()))


API = Api(DescribeAclsRequest, DescribeAclsResponse, Versions(0, 3), ACCESS, handle)
