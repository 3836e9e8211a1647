"""Fetch (key 1): returns record batches from an offset on, for consumers and followers.

| version | what it changed |
|---|---|
| 0 | the response is in message format v0 |
| 1 | throttle_time_ms |
| 2 | the response may be in message format v1 (KIP-32) |
| 3 | max_bytes for the whole response; partitions are read in the order of the request (KIP-74) |
| 4 | message format v2, isolation level, last stable offset, aborted transactions (KIP-98) |
| 5 | log_start_offset (KIP-107) |
| 6 | KAFKA_STORAGE_ERROR; before, NOT_LEADER_OR_FOLLOWER (KIP-112) |
| 7 | fetch sessions: requests and responses contain only what changed (KIP-227) |
| 8 | throttled clients get the response at once |
| 9 | current_leader_epoch fences clients with stale metadata (KIP-320) |
| 10 | zstd (KIP-110) |
| 11 | rack_id, preferred_read_replica (KIP-392) |
| 12 | flexible; last_fetched_epoch finds logs that diverged (KIP-595) |
| 13 | topic ids in place of names (KIP-516) |
| 14 | OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405) |
| 15 | replica_state in place of replica_id (KIP-903) |
| 16 | node_endpoints (KIP-951) |
| 17 | replica_directory_id (KIP-853) |
| 18 | the follower's high watermark (KIP-1166) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Records, Struct, array, batches, int8, int16, int32, int64, string, struct, uuid16


class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: uuid.UUID = uuid16("17+", tag=0)
    high_watermark: int = int64("18+", default=(1 << 63) - 1, tag=1)


class FetchTopic(Struct):
    topic: str = string("0-12")
    topic_id: uuid.UUID = uuid16("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12")
    topic_id: uuid.UUID = uuid16("13+")
    partitions: list[int] = array(int32, "7+")


class FetchRequest(Message, api="Fetch", key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records = batches(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12")
    topic_id: uuid.UUID = uuid16("13+")
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Message, api="Fetch", key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
