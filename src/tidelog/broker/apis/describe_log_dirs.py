"""DescribeLogDirs (35): returns the size of each partition, and the space on the data folder's disk (KIP-113).

If `topics` is null, all partitions are returned. Partitions that are not on this broker, or could not be loaded, are left out.
This broker has one data folder. A partition's size is the size of its log segments, without indexes.
"""

from __future__ import annotations

import os

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

ACCESS = whole(cluster(Operation.DESCRIBE), refused=at_top(DescribeLogDirsResponse))


def handle(node: Node, message: DescribeLogDirsRequest, request: Request) -> Work:
    logs = node.manager.logs
    if message.topics is None:
        yield None  # A small request can cause a lot of work, so it waits for its turn if many requests arrive together.
        keys = sorted(logs)
    else:
        asked: set[TopicPartition] = set()  # Only partitions that exist here are sorted, however many were requested.
        for count, topic in enumerate(message.topics):
            if count % 256 == 255:
                yield None
            for number, partition in enumerate(topic.partitions):
                if number % 256 == 255:
                    yield None
                key = TopicPartition(topic.topic, partition)
                if key in logs:
                    asked.add(key)
        keys = sorted(asked)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for count, key in enumerate(keys):
        if count % 16 == 15:
            yield None
        log = logs.get(key)
        if log is not None:
            size = sum(segment.size_bytes for segment in log.segments)
            one = DescribeLogDirsPartition(partition_index=key.partition, partition_size=size, offset_lag=0, is_future_key=False)
            topics.setdefault(key.topic, []).append(one)
    folder = str(node.manager.directory.absolute())
    try:
        disk = os.statvfs(folder)
    except OSError:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=folder)])
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=folder,
                topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                total_bytes=disk.f_blocks * disk.f_frsize,
                usable_bytes=disk.f_bavail * disk.f_frsize,
            )
        ]
    )


API = Api(DescribeLogDirsRequest, DescribeLogDirsResponse, Versions(0, 4), ACCESS, handle)
