"""Share groups (KIP-932), in `__consumer_offsets`. Their start offsets are in `__share_group_state` (`share_state`).

| key | record |
|---|---|
| 10 | a member: its client and its subscription |
| 11 | the group: its epoch |
| 14 | a member's assignment |

The keys 9, 12, 13 and 15 (the topics' metadata, the target assignment, the share partitions with state) are not read: members
adopt a new assignment at once, and `__share_group_state` has the share partitions.
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
