"""TxnOffsetCommit (key 28): offsets that take effect when the transaction commits (KIP-98).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | the leader epoch of the last consumed record (KIP-320) |
| 3 | flexible; the member and its generation, for fencing (KIP-447) |
| 4 | TRANSACTION_ABORTABLE (KIP-890) |
| 5 | adds the offsets' partition to the transaction implicitly (KIP-890) |
| 6 | topics by id; members of groups of the new protocol |

Kafka's newest definitions call the generation `GenerationIdOrMemberEpoch`.
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string, uuid16


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0-5")
    topic_id: uuid.UUID = uuid16("6+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api="TxnOffsetCommit", key=28, versions="0-6", flexible="3+"):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5")
    topic_id: uuid.UUID = uuid16("6+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, api="TxnOffsetCommit", key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
