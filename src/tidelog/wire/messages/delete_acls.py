"""DeleteAcls (key 31): removes access control entries, by filters (KIP-140).

| version | what it changed |
|---|---|
| 1 | pattern types (KIP-290) |
| 2 | flexible |
| 3 | user resources (KIP-373) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, string
from tidelog.wire.messages.describe_acls import LITERAL


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, api="DeleteAcls", key=31, versions="0-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, api="DeleteAcls", key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
