"""DescribeLogDirs (key 35): data folders, the partitions in them and their sizes (KIP-113).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
| 3 | error_code for the whole response |
| 4 | total and usable bytes (KIP-827) |
| 5 | is_cordoned (KIP-1066) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, api="DescribeLogDirs", key=35, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")


class DescribeLogDirsResponse(Message, api="DescribeLogDirs", key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
