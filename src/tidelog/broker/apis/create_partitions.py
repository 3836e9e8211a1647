"""CreatePartitions (37): adds partitions to topics (KIP-195).

`count` is the new total number of partitions. Existing records stay where they are, so new records of a key may go to a different
partition. A topic without a configuration is refused, because its intended number of partitions is unknown.
"""

from __future__ import annotations

from tidelog.broker.handling.access import each, named_twice
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.partitions.replica_rules import check_replicas
from tidelog.broker.quotas.client_quotas import Mutations
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, counted, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

ACCESS = each(
    Operation.ALTER,
    ResourceType.TOPIC,
    of="topics",
    name="name",
    refused=lambda topic, code: CreatePartitionsTopicResult(topic.name, code),
    response=CreatePartitionsResponse,
    into="results",
    unless=named_twice,
)

FIRST_STRICT = 3
"""From this version on clients understand THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

MAX_ADDED = 10_000
"""The most partitions that one request may add to a topic."""


def handle(node: Node, message: CreatePartitionsRequest, request: Request) -> Work:
    times = yield from counted(topic.name for topic in message.topics)
    twice = ApiError(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
    results = yield from slowly((_result(name, twice) for name, count in times.items() if count > 1), 256)
    mutations = node.quotas.mutations(request, is_strict=request.api_version >= FIRST_STRICT)
    results += yield from node.topic_changes.side_by_side(
        Job(topic.name, _tried(node, topic, mutations, validate_only=message.validate_only))
        for topic in message.topics
        if times[topic.name] == 1
    )
    yield from discarded(None, times)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)


def _tried(
    node: Node, topic: CreatePartitionsTopic, mutations: Mutations, *, validate_only: bool
) -> Steps[CreatePartitionsTopicResult]:
    try:
        yield from _create(node, topic, mutations, validate_only=validate_only)
    except Exception as error:
        return _result(topic.name, api_error_of(error))
    return CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)


def _create(node: Node, topic: CreatePartitionsTopic, mutations: Mutations, *, validate_only: bool) -> Steps[None]:
    view = node.topics.get(topic.name)
    if view is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    has = len(view.partitions)
    added = topic.count - has
    if added <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} already has {has} partitions: {topic.count} would not be an increase",
        )
    if topic.assignments is not None and len(topic.assignments) != added:
        reason = f"the request adds {added} partitions, but assigns replicas to {len(topic.assignments)}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if added > MAX_ADDED:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"too many new partitions in one request: at most {MAX_ADDED}")
    for assignment in topic.assignments or ():
        check_replicas(node.node_id, assignment.broker_ids)
    if not node.manager.is_configuration_known(topic.name):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the configuration of topic {topic.name!r} is unknown: set it first")
    mutations.record(added)
    if not validate_only:
        yield from node.topics.enlargement(topic.name, topic.count)


def _result(name: str, refusal: ApiError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=refusal.code, error_message=refusal.reason)


API = Api(CreatePartitionsRequest, CreatePartitionsResponse, Versions(0, 3), ACCESS, handle)
