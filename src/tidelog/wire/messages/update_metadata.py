"""UpdateMetadata (key 6): the controller of a ZooKeeper cluster sends brokers the metadata for clients.

Each request lists all live brokers, and the changed partitions; for a new broker, all partitions. Leader -2 marks a partition
that is being deleted. `zk_version` is the version of the partition's znode.

| version | what it changed |
|---|---|
| 0 | each partition has its topic's name; each broker has a host and a port |
| 1 | several endpoints per broker, by security protocol |
| 2 | rack (KIP-36) |
| 3 | the endpoints' listeners (KIP-103) |
| 4 | offline_replicas (KIP-112) |
| 5 | broker_epoch (KIP-380); partitions by topic |
| 6 | flexible |
| 7 | topic ids (KIP-516) |
| 8 | is_kraft_controller, and a tagged field that says whether the request is complete (KIP-866) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int16, int32, int64, string, uuid16

LEADER_DURING_DELETE = -2
"""The leader of a partition that is being deleted."""


class UpdateMetadataPartitionState(Struct):
    topic_name: str = string("0-4")
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+")


class UpdateMetadataTopicState(Struct):
    topic_name: str = string("5+")
    topic_id: uuid.UUID = uuid16("7+")
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Struct):
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+")
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Struct):
    id: int = int32()
    v0_host: str = string("0")
    v0_port: int = int32("0")
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+")
    rack: str | None = string("2+", nullable="0+")


class UpdateMetadataRequest(Message, api="UpdateMetadata", key=6, versions="0-8", flexible="6+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, api="UpdateMetadata", key=6, versions="0-8", flexible="6+"):
    error_code: int = int16()
