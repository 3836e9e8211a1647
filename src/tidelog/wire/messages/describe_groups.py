"""DescribeGroups (key 15): groups with their states and members.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | authorized operations (KIP-430) |
| 4 | group_instance_id (KIP-345) |
| 5 | flexible |
| 6 | GROUP_ID_NOT_FOUND if the group does not exist, error_message (KIP-1043) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, data, int16, int32, string


class DescribeGroupsRequest(Message, api="DescribeGroups", key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(1 << 31))


class DescribeGroupsResponse(Message, api="DescribeGroups", key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
