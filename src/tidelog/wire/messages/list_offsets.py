"""ListOffsets (key 2): returns the offset for a time, or for the start or the end of the log.

| version | what it changed |
|---|---|
| 0 | up to max_num_offsets base offsets of segments, by the files' modification times, newest first |
| 1 | one offset, and the timestamp of its record (KIP-79) |
| 2 | isolation level (KIP-98), throttle_time_ms |
| 3 | throttled clients get the response at once |
| 4 | leader epochs (KIP-320) |
| 5 | OFFSET_NOT_AVAILABLE (KIP-207) |
| 6 | flexible |
| 7 | -3: the record with the largest timestamp (KIP-734) |
| 8 | -4: the first offset that is kept locally (KIP-405) |
| 9 | -5: the last offset in tiered storage (KIP-1005) |
| 10 | timeout_ms, for tiered storage (KIP-1075) |
| 11 | -6: the first offset still to be uploaded (KIP-1023) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api="ListOffsets", key=2, versions="0-11", flexible="6+"):
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api="ListOffsets", key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
