"""AlterReplicaLogDirs (34): moves replicas to a different folder of the broker (KIP-113).

This broker has one data folder, which holds all replicas.

| requested folder | answer |
|---|---|
| the data folder | no error, nothing changes; UNKNOWN_TOPIC_OR_PARTITION for an unknown partition |
| any other | LOG_DIR_NOT_FOUND |
"""

from __future__ import annotations

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def _refused(message: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    named = {(topic.name, partition): code for one in message.dirs for topic in one.topics for partition in topic.partitions}
    return _response(named)


ACCESS = whole(cluster(Operation.ALTER), refused=_refused)


def handle(node: Node, message: AlterReplicaLogDirsRequest, request: Request) -> Work:
    folder = str(node.manager.directory.absolute())
    codes: dict[tuple[str, int], ErrorCode] = {}
    count = 0
    for one in message.dirs:
        for topic in one.topics:
            for partition in topic.partitions:
                codes[topic.name, partition] = _code(node, one.path == folder, topic.name, partition)
                count += 1
                if not count % 64:
                    yield None
            yield None
    yield from discarded(message)
    return _response(codes)


def _code(node: Node, is_here: bool, topic: str, partition: int) -> ErrorCode:
    if not is_here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    is_known = TopicPartition(topic, partition) in node.manager.logs
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(codes: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition, code))
    return AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirTopicResult(*one) for one in topics.items()])


API = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, Versions(0, 2), ACCESS, handle)
