"""CreateAcls (key 30): adds access control entries (KIP-140).

| version | what it changed |
|---|---|
| 1 | pattern types (KIP-290) |
| 2 | flexible |
| 3 | user resources (KIP-373) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, string
from tidelog.wire.messages.describe_acls import LITERAL


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api="CreateAcls", key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, api="CreateAcls", key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
