"""ListGroups (key 16): the groups that a broker coordinates.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | flexible |
| 4 | a filter by state, and each group's state (KIP-518) |
| 5 | a filter by type, and each group's type (KIP-848) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api="ListGroups", key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, api="ListGroups", key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
