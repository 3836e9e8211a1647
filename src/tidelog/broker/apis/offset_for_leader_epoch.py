"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch. Followers and consumers detect truncation with it.

If the requested epoch is newer than the log's last one, or the log has no epochs, the response has epoch -1 and offset -1,
without an error.
"""

from __future__ import annotations

from tidelog.broker.handling.access import each, unless_cluster
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.fields import Versions
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

ACCESS = unless_cluster(
    Operation.CLUSTER_ACTION,
    each(
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        of="topics",
        name="topic",
        refused=lambda topic, code: OffsetForLeaderTopicResult(
            topic.topic, [EpochEndOffset(code, one.partition) for one in topic.partitions]
        ),
        response=OffsetForLeaderEpochResponse,
        into="topics",
    ),
)


def handle(node: Node, message: OffsetForLeaderEpochRequest, request: Request) -> Work:
    topics = []
    for topic in message.topics:
        ends = (_end(node, TopicPartition(topic.topic, wanted.partition), wanted) for wanted in topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic.topic, (yield from slowly(ends, 16))))
        if len(topics) % 16 == 0:
            yield None
    yield from discarded(message)
    return OffsetForLeaderEpochResponse(0, topics)


def _end(node: Node, key: TopicPartition, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=key.partition)
    answer.error_code = node.leadership.refusal(key, wanted.current_leader_epoch)
    if answer.error_code:
        return answer
    end = node.leadership.end_offset_for_epoch(node.manager.log(*key), wanted.leader_epoch)
    if end is not None:
        answer.leader_epoch, answer.end_offset = end
    return answer


API = Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, Versions(0, 4), ACCESS, handle)
