"""Metadata (key 3): brokers, topics, partitions and their leaders.

| version | what it changed |
|---|---|
| 0 | an empty list of topics requests all topics |
| 1 | null requests all topics, an empty list requests none; racks, the controller, internal topics |
| 2 | cluster_id (KIP-78) |
| 3 | throttle_time_ms |
| 4 | allow_auto_topic_creation (KIP-204); before, a requested topic is always created |
| 5 | offline_replicas (KIP-112) |
| 6 | throttled clients get the response at once; LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE |
| 7 | leader epochs (KIP-320) |
| 8 | authorized operations (KIP-430) |
| 9 | flexible |
| 10 | topic ids in the response (KIP-516) |
| 11 | authorized operations of the cluster moved to DescribeCluster (KIP-700) |
| 12 | topics may be requested by id |
| 13 | error_code for the whole response (KIP-1102) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, string, uuid16


class MetadataRequestTopic(Struct):
    topic_id: uuid.UUID = uuid16("10+")
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, api="Metadata", key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+")


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: uuid.UUID = uuid16("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(1 << 31))


class MetadataResponse(Message, api="Metadata", key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-(1 << 31))
    error_code: int = int16("13+")
