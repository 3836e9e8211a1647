"""DescribeAcls (key 29): the access control entries that match a filter (KIP-140).

| version | what it changed |
|---|---|
| 1 | pattern types (KIP-290) |
| 2 | flexible |
| 3 | user resources (KIP-373) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, string

LITERAL = 3


class DescribeAclsRequest(Message, api="DescribeAcls", key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, api="DescribeAcls", key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
