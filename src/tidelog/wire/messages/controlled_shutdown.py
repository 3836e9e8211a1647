"""ControlledShutdown (key 7): a broker of a ZooKeeper cluster asks the controller to move its leaderships to other brokers.

The response lists the partitions that the broker still leads. The broker repeats the request until there are none.

| version | what it changed |
|---|---|
| 0 | the request's header has no client_id |
| 1 | the usual header |
| 2 | broker_epoch (KIP-380) |
| 3 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api="ControlledShutdown", key=7, versions="0-3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api="ControlledShutdown", key=7, versions="0-3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
