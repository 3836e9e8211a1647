"""DescribeProducers (61): returns the active producers of partitions, with their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Generator

from tidelog.broker.handling.access import each, why
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topics import why_invalid
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

ACCESS = each(
    Operation.READ,
    ResourceType.TOPIC,
    of="topics",
    name="name",
    refused=lambda topic, code: TopicResponse(
        topic.name, [PartitionResponse(one, code, why(code)) for one in topic.partition_indexes]
    ),
    response=DescribeProducersResponse,
    into="topics",
    unless=lambda names, name: why_invalid(name) is not None,
)


PRODUCER_BYTES = 200
"""The memory that a producer's entry takes, in bytes. On the wire the entry takes 40 bytes."""


def handle(node: Node, message: DescribeProducersRequest, request: Request) -> Work:
    answers = []
    room = AnswerRoom()
    for topic in message.topics:
        code, why = ErrorCode.NONE, why_invalid(topic.name)
        if why is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif node.topics.get(topic.name) is None:
            code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic"
        if code is ErrorCode.NONE:
            partitions = []
            for one in topic.partition_indexes:
                if room.is_used_up:
                    refusal = no_room()
                    partitions.append(PartitionResponse(one, refusal.code, refusal.reason))
                else:
                    described = yield from _described(node, topic.name, one)
                    room.use(PRODUCER_BYTES * len(described.active_producers))
                    partitions.append(described)
                yield None
        else:
            partitions = yield from slowly((PartitionResponse(one, code, why) for one in topic.partition_indexes), 64)
        answers.append(TopicResponse(topic.name, partitions))
        if len(answers) % 16 == 0:
            yield None
    yield from discarded(message)
    return DescribeProducersResponse(topics=answers)


def _described(node: Node, topic: str, partition: int) -> Generator[None, None, PartitionResponse]:
    key = TopicPartition(topic, partition)
    refusal = node.leadership.reading_refusal(key)
    if refusal:
        return PartitionResponse(partition, refusal)
    log = node.manager.log(*key)
    # There may be a producer for every client that was active during the last day.
    producers = list(log.producer_state.active_producers.values())
    described = (
        ProducerState(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_first_offset,
        )
        for one in producers
    )
    return PartitionResponse(partition, active_producers=(yield from slowly(described, 256)))


API = Api(DescribeProducersRequest, DescribeProducersResponse, Versions(0, 0), ACCESS, handle)
