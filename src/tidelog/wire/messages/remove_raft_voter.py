"""RemoveRaftVoter (key 81): removes a voter from the controllers' quorum (KIP-853).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, int16, int32, string, uuid16


class RemoveRaftVoterRequest(Message, api="RemoveRaftVoter", key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: uuid.UUID = uuid16()


class RemoveRaftVoterResponse(Message, api="RemoveRaftVoter", key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
