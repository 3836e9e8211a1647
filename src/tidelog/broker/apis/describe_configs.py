"""DescribeConfigs (32): returns properties of topics and of the broker, and where their values come from (KIP-133).

| resource | name | returns |
|---|---|---|
| topic (2) | a topic's name | all properties of the topic; Tidelog's own begin with ``tidelog.`` |
| broker (4) | this broker's id | the properties that this broker uses |
| broker (4) | empty | the cluster-wide dynamic defaults of all brokers |
| broker's loggers (8) | this broker's id | loggers and their levels |
| group (32) | a group's id | the settings of a consumer group, if consumer groups are on |
| client metrics (16) | a subscription | nothing, because there are no subscriptions |

`configuration_keys` selects properties; null or an empty list selects all. `config_entries` describes values, sources and
synonyms.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.broker.configs.config_changes import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check_broker_id,
    level_name,
    loggers,
)
from tidelog.broker.configs.config_entries import (
    CONFIG_TYPES,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigEntry,
    meanings,
)
from tidelog.broker.handling.access import of_configs
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, counted, picked, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE
from tidelog.broker.settings.group_settings import group_defaults
from tidelog.broker.topics.topics import why_invalid
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

ACCESS = of_configs(Operation.DESCRIBE_CONFIGS, refused=DescribeConfigsResult, response=DescribeConfigsResponse, into="results")

KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)

UNCOUNTED = 64
"""A request for up to this many resources is answered without estimating the response's size."""

DYNAMIC_GROUP_CONFIG = 8
INT = CONFIG_TYPES["INT"]

UNKNOWN = 0
"""Kafka's property type UNKNOWN."""


def handle(node: Node, message: DescribeConfigsRequest, request: Request) -> Work:
    kinds = (*KINDS, GROUP) if node.groups.consumers.is_enabled else KINDS
    unknown = yield from picked(message.resources, lambda one: one.resource_type not in kinds, 256)
    if unknown:  # One unknown type fails the whole request, as in Kafka.
        refusal = ApiError(ErrorCode.INVALID_REQUEST, f"unknown resource type {unknown[0].resource_type}")
        refused = yield from slowly((_refused(each, refusal) for each in message.resources), 64)
        return DescribeConfigsResponse(results=refused)
    results = []
    room = AnswerRoom()
    is_counted = len(message.resources) > UNCOUNTED
    described: dict[tuple[int, str], tuple[DescribeConfigsResult, int]] = {}
    for count, one in enumerate(message.resources):
        if room.is_used_up:
            results.append(_refused(one, no_room()))
            if count % 64 == 63:
                yield None
            continue
        wanted = yield from counted(one.configuration_keys or (), AT_ONCE)
        key = (one.resource_type, one.resource_name)
        result, size = (None, 0) if wanted else described.get(key, (None, 0))
        if result is None:
            result = _describe(node, one, wanted, message)
            if is_counted:
                size = sum(map(_size, result.configs))
                if not wanted:
                    described[key] = result, size  # If the request names a resource again, the first answer is reused.
        results.append(result)
        room.use(size)
        if count % 4 == 3:
            yield None
    return DescribeConfigsResponse(results=results)


def _describe(
    node: Node, resource: DescribeConfigsResource, wanted: Collection[str], message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        entries = _entries(node, resource)
    except Exception as error:
        return _refused(resource, api_error_of(error))
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _reported(entry, has_synonyms=message.include_synonyms, has_documentation=message.include_documentation)
            for entry in entries
            if not wanted or entry.name in wanted
        ],
    )


def _entries(node: Node, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        reason = why_invalid(name)
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if node.topics.get(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return node.configs.topic(node.topics.properties(name))
    if resource.resource_type == BROKER:
        if not name:
            return node.configs.all_brokers()
        check_broker_id(node, name)
        return node.configs.broker()
    if resource.resource_type == BROKER_LOGGER:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the resource name of loggers must be a broker's id")
        check_broker_id(node, name)
        return [
            ConfigEntry(logger, level_name(one), DYNAMIC_BROKER_LOGGER_CONFIG, UNKNOWN, False, [])
            for logger, one in loggers().items()
        ]
    if resource.resource_type == GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the resource name must be a group's id, but is empty")
        own = node.image.configs.get((GROUP, name), {})
        return [
            ConfigEntry(one, own.get(one, str(default)), DYNAMIC_GROUP_CONFIG if one in own else DEFAULT_CONFIG, INT, False, [])
            for one, default in group_defaults(node.config.consumer_groups).items()
        ]
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a client metrics subscription needs a name")
    return []


def _reported(entry: ConfigEntry, *, has_synonyms: bool, has_documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source == DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(*one) for one in entry.synonyms] if has_synonyms else [],
        config_type=entry.config_type,
        documentation=meanings().get(entry.name, "") if has_documentation else None,
    )


def _size(one: DescribeConfigsResourceResult) -> int:
    """Return the approximate size of a property in bytes."""
    size = len(one.name) + len(one.value or "") + len(one.documentation or "")
    for synonym in one.synonyms:
        size += len(synonym.name) + len(synonym.value or "")
    return size


def _refused(resource: DescribeConfigsResource, refusal: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=refusal.code,
        error_message=refusal.reason,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


API = Api(DescribeConfigsRequest, DescribeConfigsResponse, Versions(0, 4), ACCESS, handle)
