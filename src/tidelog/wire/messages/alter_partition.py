"""AlterPartition (key 56): a leader asks the controller to change the set of in-sync replicas (KIP-497).

`partition_epoch` is the partition's epoch as the leader knows it. If that is not the current epoch, the controller answers
INVALID_UPDATE_VERSION.

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | leader_recovery_state: 1 after an unclean election, until the leader has recovered (KIP-704) |
| 2 | topic ids in place of names; INELIGIBLE_REPLICA, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID (KIP-841) |
| 3 | each in-sync replica with its broker's epoch, so that a restarted broker does not count (KIP-903) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, int64, string, uuid16


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_name: str = string("0-1")
    topic_id: uuid.UUID = uuid16("2+")
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Message, api="AlterPartition", key=56, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class TopicDataResult(Struct):
    topic_name: str = string("0-1")
    topic_id: uuid.UUID = uuid16("2+")
    partitions: list[PartitionDataResult] = array(PartitionDataResult)


class AlterPartitionResponse(Message, api="AlterPartition", key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicDataResult] = array(TopicDataResult)
