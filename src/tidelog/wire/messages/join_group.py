"""JoinGroup (key 11): joins a group, and waits for the other members; the response begins a generation.

| version | what it changed |
|---|---|
| 0 | one timeout, for session and rebalance |
| 1 | rebalance_timeout_ms, separate from the session timeout (KIP-62) |
| 2 | throttle_time_ms |
| 3 | throttled clients get the response at once |
| 4 | MEMBER_ID_REQUIRED: a new member first gets an id, and then joins with that id (KIP-394) |
| 5 | group_instance_id: static members, which keep their assignment across restarts (KIP-345) |
| 6 | flexible |
| 7 | the protocol's type in the response; null for no protocol (KIP-559) |
| 8 | the reason why a member joins (KIP-800) |
| 9 | skip_assignment: a leader that rejoined need not compute an assignment (KIP-814) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, data, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = data()


class JoinGroupRequest(Message, api="JoinGroup", key=11, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = data()


class JoinGroupResponse(Message, api="JoinGroup", key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
