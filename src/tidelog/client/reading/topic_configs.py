"""Requests the topic properties that decide how long records are kept (DescribeConfigs, KIP-133: Kafka 0.11 and later)."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.connections.cluster import Cluster
from tidelog.config import LogConfig
from tidelog.errors import TidelogError
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

NEWEST_VERSION = 4
TOPIC = 2
"""Kafka's number of the resource type."""

MESSAGE_FORMAT = "message.format.version"

NAMES = ("cleanup.policy", "retention.ms", "retention.bytes")


def retention_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, LogConfig]:
    """Return a configuration for each topic whose properties the brokers report. Only `NAMES` are requested; all other properties
    have their defaults.
    """
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=list(NAMES))
        for topic in dict.fromkeys(topics)
    ]
    if not resources:
        return {}
    try:
        answer = cluster.ask_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, newest=NEWEST_VERSION)
    except TidelogError:
        return {}
    found: dict[str, LogConfig] = {}
    for result in answer.results:
        properties = {one.name: one.value for one in result.configs if one.name in NAMES and one.value is not None}
        if not result.error_code and len(properties) == len(NAMES):
            found[result.resource_name] = LogConfig.from_properties(properties)
    return found


def is_without_transactions(cluster: Cluster, topic: str) -> bool:
    """Whether a topic is set to message format v0 or v1, which do not support producer ids. False if no broker says so."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[MESSAGE_FORMAT])
    try:
        answer = cluster.ask_any(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, newest=NEWEST_VERSION)
    except TidelogError:
        return False
    values = [one.value or "" for result in answer.results for one in result.configs if one.name == MESSAGE_FORMAT]
    return any(value.startswith(("0.8", "0.9", "0.10")) for value in values)
