"""OffsetForLeaderEpoch (key 23): returns the end offset of a leader epoch (KIP-101).

| version | what it changed |
|---|---|
| 0 | the end offset of an epoch (KIP-101) |
| 1 | leader_epoch in the response: the last epoch at or below the requested one (KIP-279) |
| 2 | current_leader_epoch (KIP-320), throttle_time_ms |
| 3 | replica_id: consumers (-2) get offsets up to the high watermark only (KIP-320) |
| 4 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api="OffsetForLeaderEpoch", key=23, versions="0-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, api="OffsetForLeaderEpoch", key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
