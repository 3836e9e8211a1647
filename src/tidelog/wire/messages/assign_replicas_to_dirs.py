"""AssignReplicasToDirs (key 73): a broker reports to the controller which of its data folders each partition is in (KIP-858).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, uuid16


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: uuid.UUID = uuid16()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Message, api="AssignReplicasToDirs", key=73, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionDataResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicDataResult(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[PartitionDataResult] = array(PartitionDataResult)


class DirectoryDataResult(Struct):
    id: uuid.UUID = uuid16()
    topics: list[TopicDataResult] = array(TopicDataResult)


class AssignReplicasToDirsResponse(Message, api="AssignReplicasToDirs", key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryDataResult] = array(DirectoryDataResult)
