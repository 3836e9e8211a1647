"""CreateTopics (19): creates topics.

In every version -1 means the broker's default number of partitions or replicas, as in Kafka 3.9.

Topics are handled independently: an error in one does not prevent the others. A topic that the request names twice is always
refused. The checks run in Kafka's order, so if several checks fail, the client gets the same error as from Kafka: the name, an
existing or colliding topic, the configuration, then partitions and replicas. A request with more topics, partitions and
properties than Kafka's controller could write at once is refused as a whole.

On a standalone broker a topic has one replica.
"""

from __future__ import annotations

from collections import Counter

from tidelog.broker.handling.access import Access, Amend, Asker, each, named_twice, unless_cluster
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.partitions.replica_rules import check_assignments, check_replication_factor
from tidelog.broker.quotas.client_quotas import Mutations
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.broker.requests.slices import Work, counted, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.broker.topics.topics import why_invalid
from tidelog.model import METADATA_TOPIC
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.folder.data_folder import new_topic_id
from tidelog.storage.steps import Steps
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REPLICATION_FACTOR = 1

MAX_SIZE = 10_000
"""The most topics, partitions and properties, in total, that one request may create."""

AT_ONCE = 256

FIRST_STRICT = 6
"""From this version on clients understand THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

WIDE = 16
"""A response with more topics than this is encoded on another thread, because each topic has forty properties."""


_CREATION = unless_cluster(
    Operation.CREATE,
    each(
        Operation.CREATE,
        ResourceType.TOPIC,
        of="topics",
        name="name",
        refused=lambda topic, code: CreatableTopicResult(name=topic.name, error_code=code, error_message=_why(code), configs=[]),
        response=CreateTopicsResponse,
        into="topics",
        unless=lambda names, name: named_twice(names, name) or name == METADATA_TOPIC,
    ),
)


def _why(code: ErrorCode) -> str:
    return "Authorization failed." if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else code.name


def _gate(asker: Asker, message: CreateTopicsRequest) -> Message | Outcome | Amend | None:
    hidden = {
        name
        for name, count in Counter(one.name for one in message.topics).items()
        if count == 1
        and name != METADATA_TOPIC
        and not asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, log_denied=False)
    }
    assert _CREATION.gate is not None
    verdict = _CREATION.gate(asker, message)
    if not hidden or not (verdict is None or callable(verdict)):
        return verdict

    def amend(response: CreateTopicsResponse) -> Message | Outcome:
        for one in response.topics:
            if one.name in hidden and not one.error_code:
                one.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                one.num_partitions = one.replication_factor = -1
                one.configs = []
        return response if verdict is None else verdict(response)

    return amend


ACCESS = Access(
    "CREATE on CLUSTER, or on each TOPIC; DESCRIBE_CONFIGS on each for its configuration",
    _gate,
)


def handle(node: Node, message: CreateTopicsRequest, request: Request) -> Work:
    times = yield from counted(topic.name for topic in message.topics)
    if sum((yield from slowly((_size(node, topic) for topic in message.topics), AT_ONCE))) > MAX_SIZE:
        too_many = ApiError(
            ErrorCode.POLICY_VIOLATION, f"too many topics, partitions and properties in one request: at most {MAX_SIZE}"
        )
        refused = yield from slowly((_refused(name, too_many) for name in times), AT_ONCE)
        yield from discarded(None, times)
        return CreateTopicsResponse(topics=refused)
    mutations = node.quotas.mutations(request, is_strict=request.api_version >= FIRST_STRICT)
    results = yield from node.topic_changes.side_by_side(
        Job(topic.name, _result(node, topic, mutations, validate_only=message.validate_only))
        for topic in message.topics
        if times[topic.name] == 1 and topic.name != METADATA_TOPIC
    )
    results += [
        _refused(name, ApiError(ErrorCode.INVALID_REQUEST, "the request names the topic more than once"))
        for name, count in times.items()
        if count > 1
    ]
    if times[METADATA_TOPIC] == 1:
        results.append(
            _refused(METADATA_TOPIC, ApiError(ErrorCode.INVALID_REQUEST, "Kafka reserves this name for its own metadata"))
        )
    response = CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=results)
    return Wide(response) if len(results) > WIDE else response


def _size(node: Node, topic: CreatableTopic) -> int:
    partitions = node.config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)
    return 1 + len(topic.configs) + (len(topic.assignments) or partitions)


def _result(node: Node, topic: CreatableTopic, mutations: Mutations, *, validate_only: bool) -> Steps[CreatableTopicResult]:
    try:
        return (yield from _create(node, topic, mutations, validate_only=validate_only))
    except Exception as error:
        return _refused(topic.name, api_error_of(error))


def _create(node: Node, topic: CreatableTopic, mutations: Mutations, *, validate_only: bool) -> Steps[CreatableTopicResult]:
    name = topic.name
    reason = why_invalid(name)
    if node.topics.get(name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    colliding = node.topics.colliding(name)
    if colliding is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} differs from topic {colliding!r} in dots and underscores only"
        )
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"these properties have no value: {', '.join(nulls)}")
    properties = {config.name: config.value or "" for config in topic.configs}
    node.configs.check_topic(properties)
    partitions = _partitions(node, topic)
    mutations.record(partitions)
    if validate_only:
        topic_id = new_topic_id()
    else:
        topic_id = (yield from node.topics.creation(name, partitions, properties)).topic_id
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partitions,
        replication_factor=REPLICATION_FACTOR,
        configs=[
            CreatableTopicConfigs(name=one.name, value=one.value, read_only=False, config_source=one.source, is_sensitive=False)
            for one in node.configs.created_topic(properties)
        ],
    )


def _partitions(node: Node, topic: CreatableTopic) -> int:
    """Return how many partitions the topic gets. Raises ApiError."""
    if topic.assignments:
        if topic.replication_factor != -1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "replicas are assigned, so the replication factor must be -1")
        if topic.num_partitions != -1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "replicas are assigned, so the number of partitions must be -1")
        return check_assignments(node.node_id, ((one.partition_index, one.broker_ids) for one in topic.assignments))
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "a replication factor must be at least 1, or -1 for the broker's default"
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "a topic needs at least 1 partition, or -1 for the broker's default")
    check_replication_factor(
        node.config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    )
    return node.config.num_partitions if topic.num_partitions == -1 else topic.num_partitions


def _refused(name: str, refusal: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.reason, configs=[])


API = Api(CreateTopicsRequest, CreateTopicsResponse, Versions(0, 7), ACCESS, handle)
