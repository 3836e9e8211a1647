"""ConsumerGroupDescribe (key 69): groups of the new protocol with their members (KIP-848).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, string, struct, uuid16


class ConsumerGroupDescribeRequest(Message, api="ConsumerGroupDescribe", key=69, versions="0", flexible="0+"):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class AssignedTopicPartitions(Struct):
    topic_id: uuid.UUID = uuid16()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class MemberAssignment(Struct):
    topic_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions)


class ConsumerGroupMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: MemberAssignment = struct(MemberAssignment)
    target_assignment: MemberAssignment = struct(MemberAssignment)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupMember] = array(ConsumerGroupMember)
    authorized_operations: int = int32(default=-(1 << 31))


class ConsumerGroupDescribeResponse(Message, api="ConsumerGroupDescribe", key=69, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
