"""SyncGroup (key 14): the leader sends all members' assignments, and each member receives its own.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | group_instance_id (KIP-345) |
| 4 | flexible |
| 5 | the protocol's type and name, in both directions (KIP-559) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, data, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = data()


class SyncGroupRequest(Message, api="SyncGroup", key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api="SyncGroup", key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = data()
