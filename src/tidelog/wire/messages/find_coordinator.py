"""FindCoordinator (key 10): returns the broker that coordinates a group or a transactional id.

| version | what it changed |
|---|---|
| 0 | groups only |
| 1 | key_type: 0 for a group, 1 for a transactional id (KIP-98); error_message, throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | flexible |
| 4 | many keys in one request (KIP-699) |
| 5 | TRANSACTION_ABORTABLE (KIP-890) |
| 6 | key_type 2, for share groups (KIP-932) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api="FindCoordinator", key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


class FindCoordinatorResponse(Message, api="FindCoordinator", key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
