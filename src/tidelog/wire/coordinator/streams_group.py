"""Groups of Kafka Streams (KIP-1071), in `__consumer_offsets`: the group and its members.

| key | record |
|---|---|
| 17 | the group: its epoch |
| 19 | a member: its client |

The keys 18 and 20 to 23 (the topology and the members' tasks) are not read. The group's commits are ordinary offset records.
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int32, int64, string, struct, uint16


class StreamsGroupMetadataKey(Message, versions="17"):
    group_id: str = string()


class LastAssignmentConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(LastAssignmentConfig, nullable="0+", tag=1)
    stored_description_topology_epoch: int = int32(default=-1, tag=2)
    failed_description_topology_epoch: int = int32(default=-1, tag=3)


class StreamsGroupMemberMetadataKey(Message, versions="19"):
    group_id: str = string()
    member_id: str = string()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)
