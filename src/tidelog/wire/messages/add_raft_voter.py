"""AddRaftVoter (key 80): adds a voter to the controllers' quorum (KIP-853).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, string, uint16, uuid16


class VoterListener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Message, api="AddRaftVoter", key=80, versions="0", flexible="0+"):
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: uuid.UUID = uuid16()
    listeners: list[VoterListener] = array(VoterListener)


class AddRaftVoterResponse(Message, api="AddRaftVoter", key=80, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
