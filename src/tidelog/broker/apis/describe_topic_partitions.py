"""DescribeTopicPartitions (75): describes topics and their partitions, page by page (KIP-966).

Topics are sorted by name and their partitions by number. A response has at most as many partitions as the request allows, and at
most `MAX_PARTITIONS`. If partitions are left, `next_cursor` names the next one. As in Kafka, a partition without
a leader is not an error: its leader is -1.

| requested | answer |
|---|---|
| no topics | all topics, starting at the cursor |
| an unknown topic | UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION if the name is invalid |
| a cursor for a topic that the request does not name | that topic is included |
| a cursor with a negative partition | INVALID_REQUEST for every topic |
"""

from __future__ import annotations

from tidelog.broker.handling.access import Access, may, operations_of
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topics import why_invalid
from tidelog.model import INTERNAL_TOPICS
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

ACCESS = Access("DESCRIBE on each TOPIC: a request for all topics omits those without it")

MAX_PARTITIONS = 2000
"""Kafka's `max.request.partition.size.limit`."""

_METADATA_VERSION = 12
"""The version of Metadata whose topic descriptions this API reuses."""


def handle(node: Node, message: DescribeTopicPartitionsRequest, request: Request) -> Work:
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        refused = (DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, one.name) for one in message.topics)
        topics = yield from slowly(refused, 128)
        yield from discarded(message)
        return DescribeTopicPartitionsResponse(topics=topics)
    response = DescribeTopicPartitionsResponse()
    first = "" if cursor is None else cursor.topic_name
    named: list[str] = []
    if message.topics:
        wanted = {one.name for one in message.topics}
        named = sorted(name for name in wanted | {first} if name >= first) if cursor is not None else sorted(wanted)
        yield None
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    names = iter(named) if message.topics else (view.name for view in node.topics.all() if view.name >= first)
    left = max(min(message.response_partition_limit, MAX_PARTITIONS), 1)
    for count, name in enumerate(names):
        if not may(node, request, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if message.topics:
                denied.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            if count % 16 == 15:
                yield None
            continue
        if not left:
            response.next_cursor = Cursor(name, 0)
            break
        start = cursor.partition_index if cursor is not None and name == first else 0
        topic = _topic(node, name, request, start, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        view = node.topics.get(name)
        if view is not None and start + len(topic.partitions) < len(view.partitions):
            response.next_cursor = Cursor(name, start + len(topic.partitions))
            break
        if count % 16 == 15:
            yield None
    response.topics += denied
    yield from discarded(message, named)
    return response


def _topic(node: Node, name: str, request: Request, start: int, most: int) -> DescribeTopicPartitionsResponseTopic:
    view = node.topics.get(name)
    operations = operations_of(node, request, ResourceType.TOPIC, name)
    is_internal = name in INTERNAL_TOPICS
    if view is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why_invalid(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        return DescribeTopicPartitionsResponseTopic(code, name, is_internal=is_internal, topic_authorized_operations=operations)
    topic = DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, name, view.topic_id, is_internal, topic_authorized_operations=operations
    )
    for one in node.topics.described(view, request.listener, _METADATA_VERSION).partitions[start : start + most]:
        record = node.image.partition(name, one.partition_index)
        topic.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE,
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                one.replica_nodes,
                one.isr_nodes,
                [] if record is None else record.eligible_leader_replicas or [],
                [] if record is None else record.last_known_elr or [],
                one.offline_replicas,
            )
        )
    return topic


API = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, Versions(0, 0), ACCESS, handle)
