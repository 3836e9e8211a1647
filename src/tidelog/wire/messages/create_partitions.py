"""CreatePartitions (key 37): increases the number of a topic's partitions (KIP-195).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
| 3 | THROTTLING_QUOTA_EXCEEDED (KIP-599) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Message, api="CreatePartitions", key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Message, api="CreatePartitions", key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
