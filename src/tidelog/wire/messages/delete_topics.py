"""DeleteTopics (key 20): deletes topics.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | TOPIC_DELETION_DISABLED; before, INVALID_REQUEST |
| 4 | flexible |
| 5 | error_message; THROTTLING_QUOTA_EXCEEDED (KIP-599) |
| 6 | topics by name or by id (KIP-516) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, string, uuid16


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: uuid.UUID = uuid16("6+")


class DeleteTopicsRequest(Message, api="DeleteTopics", key=20, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: uuid.UUID = uuid16("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, api="DeleteTopics", key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
