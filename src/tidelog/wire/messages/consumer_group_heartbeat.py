"""ConsumerGroupHeartbeat (key 68): a member of a group of the new protocol (KIP-848).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | subscriptions by a regular expression; the client chooses the member's id (KIP-848, KIP-1082) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, string, struct, uuid16


class HeartbeatTopicPartitions(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Message, api="ConsumerGroupHeartbeat", key=68, versions="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(HeartbeatTopicPartitions, nullable="0+", default=None)


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, api="ConsumerGroupHeartbeat", key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = struct(HeartbeatAssignment, nullable="0+")
