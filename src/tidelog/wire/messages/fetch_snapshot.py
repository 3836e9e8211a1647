"""FetchSnapshot (key 59): returns bytes of a snapshot of the metadata log, from a given position (KIP-630).

`unaligned_records` are bytes of the file, which may begin and end within a batch. The field is not nullable, so Kafka 3.9.1 and
4.2.0 fail to encode their SNAPSHOT_NOT_FOUND response. For a snapshot that no longer exists they answer UNKNOWN_SERVER_ERROR,
without topics.

| version | changes |
|---|---|
| 0 | the first version; flexible |
| 1 | replica_directory_id; node_endpoints of the leaders (KIP-853) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Records, Struct, array, batches, int16, int32, int64, string, struct, uint16, uuid16


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: uuid.UUID = uuid16("1+", tag=0)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Message, api="FetchSnapshot", key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionSnapshotResult(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records = batches()


class TopicSnapshotResult(Struct):
    name: str = string()
    partitions: list[PartitionSnapshotResult] = array(PartitionSnapshotResult)


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, api="FetchSnapshot", key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicSnapshotResult] = array(TopicSnapshotResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
