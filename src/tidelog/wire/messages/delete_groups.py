"""DeleteGroups (key 42): deletes groups without members, and their offsets (KIP-229).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
| 3 | error_message |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api="DeleteGroups", key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None)


class DeleteGroupsResponse(Message, api="DeleteGroups", key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
