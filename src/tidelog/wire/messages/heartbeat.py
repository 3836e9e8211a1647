"""Heartbeat (key 12): a member reports that it is alive, and learns whether its group is rebalancing.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | group_instance_id (KIP-345) |
| 4 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, int16, int32, string


class HeartbeatRequest(Message, api="Heartbeat", key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api="Heartbeat", key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
