"""LeaderAndIsr (key 4): the controller of a ZooKeeper cluster announces partitions' leaders and in-sync replicas.

`partition_epoch` is the version of the partition's znode. `live_leaders` are the leaders of these partitions, with
their inter-broker addresses.

| version | what it changed |
|---|---|
| 0 | each partition has its topic's name |
| 1 | is_new: whether the broker has never had the replica (KIP-112) |
| 2 | broker_epoch (KIP-380); partitions by topic |
| 3 | adding_replicas, removing_replicas (KIP-455) |
| 4 | flexible |
| 5 | topic ids; type: 1 if the request lists all of the broker's partitions, else 0 (KIP-516); responses by topic id |
| 6 | leader_recovery_state (KIP-704) |
| 7 | is_kraft_controller: the controllers of KRaft have taken over (KIP-866) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int16, int32, int64, string, uuid16


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = string("0-1")
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, "3+")
    removing_replicas: list[int] = array(int32, "3+")
    is_new: bool = boolean("1+")
    leader_recovery_state: int = int8("6+")


class LeaderAndIsrTopicState(Struct):
    topic_name: str = string("2+")
    topic_id: uuid.UUID = uuid16("5+")
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Message, api="LeaderAndIsr", key=4, versions="0-7", flexible="4+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1)
    type: int = int8("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = string("0-4")
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Struct):
    topic_id: uuid.UUID = uuid16("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


class LeaderAndIsrResponse(Message, api="LeaderAndIsr", key=4, versions="0-7", flexible="4+"):
    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
