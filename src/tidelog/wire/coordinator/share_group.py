"""Share groups (KIP-932), in `__consumer_offsets`. Their start offsets are in `__share_group_state` (`share_state`).

| key | record |
|---|---|
| 10 | a member: its client and its subscription |
| 11 | the group: its epoch |
| 12 | the epoch of the target assignment |
| 13 | a member's target assignment |
| 14 | a member's current assignment |
| 15 | the topics with share partitions whose state is initialized, being initialized, or being deleted |

Only the early access versions in Kafka 3.9 and 4.0 wrote the key 9, and values with other fields. These are not read.
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int8, int32, int64, string, uuid16


class ShareGroupMemberMetadataKey(Message, versions="10"):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, versions="11"):
    group_id: str = string()


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions="12"):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="13"):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[int] = array(int32)


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class TopicPartitions(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[int] = array(int32)


class ShareGroupCurrentMemberAssignmentKey(Message, versions="14"):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class TopicPartitionsInfo(Struct):
    topic_id: uuid.UUID = uuid16()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Struct):
    topic_id: uuid.UUID = uuid16()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataKey(Message, versions="15"):
    group_id: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
