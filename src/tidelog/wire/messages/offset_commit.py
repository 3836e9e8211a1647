"""OffsetCommit (key 8): stores a group's offsets.

| version | what it changed |
|---|---|
| 0 | stored in ZooKeeper |
| 1 | stored by the broker; the member and its generation; a timestamp for each partition |
| 2 | one retention_time_ms instead of the timestamps |
| 3 | throttle_time_ms |
| 4 | throttled clients get the response at once |
| 5 | no retention time: the broker's setting applies (KIP-211) |
| 6 | the leader epoch of the last consumed record (KIP-320) |
| 7 | group_instance_id (KIP-345) |
| 8 | flexible |
| 9 | members of groups of the new protocol, whose generation is an epoch (KIP-848) |
| 10 | topics by id |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string, uuid16


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9")
    topic_id: uuid.UUID = uuid16("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api="OffsetCommit", key=8, versions="0-10", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9")
    topic_id: uuid.UUID = uuid16("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api="OffsetCommit", key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
