"""LeaveGroup (key 13): members leave a group before their sessions end.

| version | what it changed |
|---|---|
| 0 | one member, by its id; the response's error is the member's |
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | many members in one request, by member id or instance id, for administrators that remove members (KIP-345) |
| 4 | flexible |
| 5 | the reason why each member leaves (KIP-800) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, api="LeaveGroup", key=13, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api="LeaveGroup", key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
