"""DescribeQuorum (key 55): the leader of the metadata log, and the log end offsets of its voters and observers (KIP-595).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | the last time at which each replica fetched, and the last time at which it had caught up (KIP-836) |
| 2 | error messages, directory ids, the nodes' listeners (KIP-853) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string, uint16, uuid16


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Message, api="DescribeQuorum", key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: uuid.UUID = uuid16("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class PartitionDataResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicDataResult(Struct):
    topic_name: str = string()
    partitions: list[PartitionDataResult] = array(PartitionDataResult)


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, api="DescribeQuorum", key=55, versions="0-2", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicDataResult] = array(TopicDataResult)
    nodes: list[Node] = array(Node, "2+")
