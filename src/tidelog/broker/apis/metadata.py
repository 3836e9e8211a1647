"""Metadata (3): returns brokers, topics, and the leaders of partitions.

If any topic is requested by id, names are ignored. `topics` (on a standalone broker) or `topics.cluster_topics` describes each
topic.

If a topic is missing and may be created (auto.create.topics.enable), the broker creates it and returns
UNKNOWN_TOPIC_OR_PARTITION, as Kafka does until its controller has created the topic. When the client retries, the topic exists.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Generator
from copy import copy
from typing import Any

from tidelog.broker.handling.access import Access, may, operations_of
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request, Wide
from tidelog.broker.requests.slices import Elsewhere, Until, Work, counted, picked, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.broker.topics.topics import NO_TOPIC_ID, why_invalid
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.model import INTERNAL_TOPICS
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

ACCESS = Access(
    "DESCRIBE on each TOPIC: a request for all topics omits those without it; CREATE on CLUSTER or the TOPIC to create it; "
    "DESCRIBE on CLUSTER for its authorized operations"
)

logger = logging.getLogger("tidelog.broker")

NOT_ASKED_FOR = -(2**31)
"""The value of the authorized operations field if the client did not request it."""

WIDE = 1000
"""A response with more topics and partitions than this is encoded on another thread."""

MAX_SIZE = 10_000
"""The most topics and partitions that one request may create, as in CreateTopics."""


def handle(node: Node, message: MetadataRequest, request: Request) -> Work:
    version, listener = request.api_version, request.listener
    asked = message.topics
    names: dict[str, None] = {}
    ids: dict[uuid.UUID, int] = {}
    is_all = asked is None or (version == 0 and not asked)
    if is_all:
        seen = node.topics.all()
        if node.permissions is not None:
            seen = yield from picked(seen, lambda view: _may_see(node, request, view.name, log_denied=False), 64)
        topics = yield from slowly((node.topics.described(view, listener, version) for view in seen), 4)
    else:
        assert asked is not None
        has_ids = has_nulls = False
        for count, topic in enumerate(asked):
            has_ids |= topic.topic_id is not NO_TOPIC_ID and topic.topic_id != NO_TOPIC_ID
            if topic.name is None:
                has_nulls = True
            else:
                names[topic.name] = None
            if count % 256 == 255:
                yield None
        if version < 12 and (has_nulls or has_ids):
            return (yield from _refusal(message, ErrorCode.INVALID_REQUEST))
        if has_ids:
            ids = yield from counted((topic.topic_id for topic in asked), 64)
            ids.pop(NO_TOPIC_ID, None)
            topics = yield from slowly((_topic_of_id(node, topic_id, request) for topic_id in ids), 16)
        elif has_nulls:
            # A topic without id and name, on which Kafka fails.
            return (yield from _refusal(message, ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            may_create = node.config.auto_create_topics_enable and message.allow_auto_topic_creation
            topics = yield from _topics_of_names(node, names, request, may_create=may_create)
    operations = cluster_operations(node, request) if message.include_cluster_authorized_operations else NOT_ASKED_FOR
    if message.include_topic_authorized_operations:
        topics = yield from slowly((_with_operations(node, request, one) for one in topics), 64)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in node.brokers.alive(listener)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.brokers.controller_id(listener),
        topics=topics,
        cluster_authorized_operations=operations,
    )
    # With very many topics only the topics are counted: counting their partitions would take too long.
    size = len(topics)
    if size <= WIDE:
        for described in topics:
            size += len(described.partitions)
    if asked is not None and len(asked) > AT_ONCE:
        yield from discarded(message, names, ids)
    # The topics' descriptions are cached with their views, and many responses share them.
    return Wide(response, True, size > WIDE)


def _topics_of_names(
    node: Node, names: Collection[str], request: Request, *, may_create: bool
) -> Generator[Elsewhere | Until | None, Any, list[MetadataResponseTopic]]:
    topics = []
    missing = []
    for count, name in enumerate(names):
        if count % 16 == 15:
            yield None
        if not _may_see(node, request, name):
            topics.append(_refused_topic(name))
            continue
        view = node.topics.get(name)
        if view is not None:
            topics.append(node.topics.described(view, request.listener, request.api_version))
            continue
        is_invalid = why_invalid(name) is not None
        if may_create and not _may_create(node, request, name):
            topics.append(_refused_topic(name))
            continue
        topics.append(
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                is_internal=name in INTERNAL_TOPICS,
            )
        )
        if may_create and not is_invalid:
            missing.append(name)
    if missing:
        if len(missing) * (1 + node.config.num_partitions) > MAX_SIZE:
            logger.warning("a client requested %d missing topics, too many to create at once: none is created", len(missing))
        elif node.topic_creation is not None:
            node.topic_creation.ask(missing, request)
        else:
            yield from node.topic_changes.side_by_side(Job(name, _create(node, name)) for name in missing)
    return topics


def _create(node: Node, name: str) -> Steps[None]:
    """Create a topic that a client wants to use. A failure is logged here, because the response has no field for it."""
    if node.topics.get(name) is not None:
        return  # Another client's request has created the topic in the meantime.
    try:
        if node.config.default_replication_factor != 1:
            raise InvalidArgumentError(
                "a single broker cannot keep more than one replica",
                found=f"default.replication.factor={node.config.default_replication_factor}",
                expected=1,
            )
        yield from node.topics.creation(name, node.config.num_partitions, {})
    except TidelogError as error:
        logger.warning("could not create topic %s, which a client requested: %s", name, error)


def _topic_of_id(node: Node, topic_id: uuid.UUID, request: Request) -> MetadataResponseTopic:
    view = node.topics.by_id(topic_id)
    if view is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not _may_see(node, request, view.name):
        # The response may contain the id, but not the name.
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return node.topics.described(view, request.listener, request.api_version)


def _may_see(node: Node, request: Request, name: str, *, log_denied: bool = True) -> bool:
    return may(node, request, Operation.DESCRIBE, ResourceType.TOPIC, name, log_denied=log_denied)


def _may_create(node: Node, request: Request, name: str) -> bool:
    return may(node, request, Operation.CREATE, ResourceType.CLUSTER, log_denied=False) or may(
        node, request, Operation.CREATE, ResourceType.TOPIC, name
    )


def _refused_topic(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=name in INTERNAL_TOPICS)


def cluster_operations(node: Node, request: Request) -> int:
    """Return a bit field of the operations that the client may perform on the cluster; 0 if it may not describe the cluster."""
    is_allowed = may(node, request, Operation.DESCRIBE, ResourceType.CLUSTER)
    return operations_of(node, request, ResourceType.CLUSTER) if is_allowed else 0


def _with_operations(node: Node, request: Request, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic
    described = copy(topic)  # Other responses share the topic's cached description.
    described.topic_authorized_operations = operations_of(node, request, ResourceType.TOPIC, topic.name)
    return described


def _refusal(message: MetadataRequest, code: ErrorCode) -> Generator[None, None, Wide]:
    """Return the error for ids and null names in versions 10 and 11, which have the fields but do not support them."""
    made = (
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in message.topics or ()
    )
    topics = yield from slowly(made, 64)
    return Wide(MetadataResponse(topics=topics), is_long=len(topics) > WIDE)


API = Api(MetadataRequest, MetadataResponse, Versions(0, 12), ACCESS, handle)
