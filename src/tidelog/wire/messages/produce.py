"""Produce (key 0): appends record batches, and returns their offsets.

| version | what it changed |
|---|---|
| 0 | message format v0 |
| 1 | throttle_time_ms |
| 2 | message format v1 (KIP-32); the response contains the append time |
| 3 | message format v2 (KIP-98): exactly one batch per partition, only of that format; transactional_id |
| 4 | responses may have KAFKA_STORAGE_ERROR (KIP-112) |
| 5 | log_start_offset in the response (KIP-107) |
| 6 | throttled clients get the response at once |
| 7 | zstd (KIP-110) |
| 8 | the rejected records, each with the reason (KIP-467) |
| 9 | flexible |
| 10 | the new leader, with NOT_LEADER_OR_FOLLOWER (KIP-951) |
| 11 | TRANSACTION_ABORTABLE (KIP-890) |
| 12 | adds the partition to the transaction implicitly (KIP-890) |
| 13 | topic ids in place of names (KIP-516) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Records, Struct, array, batches, int16, int32, int64, string, struct, uuid16


class PartitionProduceData(Struct):
    index: int = int32()
    records: Records = batches(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12")
    topic_id: uuid.UUID = uuid16("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api="Produce", key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12")
    topic_id: uuid.UUID = uuid16("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api="Produce", key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
