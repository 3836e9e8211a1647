"""A group and its members, in `__consumer_offsets`. The record is written when the members get their assignments, and when the
last member leaves.

| value | change |
|---|---|
| 1 | rebalance_timeout (KIP-62) |
| 2 | current_state_timestamp (KIP-211) |
| 3 | group_instance_id (KIP-345) |
| 4 | flexible |

Timeouts and timestamps are milliseconds.
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, data, int32, int64, string


class GroupMetadataKey(Message, versions="2"):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = data()
    assignment: bytes = data()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
