"""AlterPartitionReassignments (45): moves partitions to other replicas (KIP-455).

A standalone broker holds every replica, so nothing can move:

| requested replicas | answer |
|---|---|
| this broker | no error, nothing changes |
| any other broker, several, none, or a duplicate | INVALID_REPLICA_ASSIGNMENT |
| null (cancel a reassignment) | NO_REASSIGNMENT_IN_PROGRESS |
| any, for an unknown partition | UNKNOWN_TOPIC_OR_PARTITION |
"""

from __future__ import annotations

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

ACCESS = whole(
    cluster(Operation.ALTER),
    refused=lambda message, code: AlterPartitionReassignmentsResponse(
        error_code=code,
        responses=[
            ReassignableTopicResponse(
                topic.name, [ReassignablePartitionResponse(one.partition_index, code) for one in topic.partitions]
            )
            for topic in message.topics
        ],
    ),
)


def handle(node: Node, message: AlterPartitionReassignmentsRequest, request: Request) -> Work:
    responses = []
    for topic in message.topics:
        made = yield from slowly((_response(node, topic.name, one) for one in topic.partitions), 16)
        responses.append(ReassignableTopicResponse(topic.name, made))
        if not len(responses) % 16:
            yield None
    yield from discarded(message)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change, error_message=None, responses=responses
    )


def _response(node: Node, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    code, reason = _outcome(node, TopicPartition(topic, wanted.partition_index), wanted.replicas)
    return ReassignablePartitionResponse(wanted.partition_index, code, reason)


def _outcome(node: Node, key: TopicPartition, replicas: list[int] | None) -> tuple[ErrorCode, str | None]:
    if node.leadership.refusal(key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such partition"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned"
    if replicas != [node.node_id]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {node.node_id} is the only broker: no other can hold replicas"
    return ErrorCode.NONE, None


API = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, Versions(0, 1), ACCESS, handle)
