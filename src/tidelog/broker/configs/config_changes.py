"""Changes properties, for AlterConfigs (replaces all of a resource) and IncrementalAlterConfigs (one by one, KIP-339).

| resource | |
|---|---|
| topic (2) | takes effect at once: with the next append, roll, retention check or compaction |
| broker (4) | some take effect at once, for this broker (its id) or all (empty name): see `dynamic_settings` |
| broker's loggers (8) | incremental changes only, until the process ends; log4j's levels; `root` is Tidelog's root logger |
| group (32) | takes effect with the group's next heartbeat; refused while consumer groups are off |
| any other | refused |

| operation | a topic's property |
|---|---|
| set (0) | gets the value |
| delete (1) | is reset to the broker's default |
| append (2), subtract (3) | for lists: existing values are not added again, missing ones are not an error |

The checks run in Kafka's order. A topic without a configuration gets one at the first change. In that configuration, properties
that the change does not set have values that prevent any deletion of records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from tidelog.broker.configs.config_entries import ConfigEntries
from tidelog.broker.loop.rate_limited_log import one_line
from tidelog.broker.peers.forwarding import Forwarding
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.slices import Elsewhere, Until, counted
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.dynamic_settings import DynamicSettings, is_sensitive
from tidelog.broker.settings.group_settings import check_group_settings
from tidelog.broker.topics.topic_changes import Job, TopicChanges
from tidelog.broker.topics.topics import Topics, why_invalid
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError
from tidelog.metadata.image import MetadataImage
from tidelog.security.secret import HIDDEN
from tidelog.storage.log_manager import LogManager
from tidelog.storage.steps import Steps
from tidelog.wire.decoder_source import MAX_STRING_BYTES
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse

logger = logging.getLogger("tidelog.broker")

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

ROOT_LOGGER = "root"
LOG_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
"""log4j's names; Python has no level below DEBUG."""


class Operation(IntEnum):
    """What an incremental change does to a property."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(int(one) for one in Operation)


class Change(NamedTuple):
    """A property's change. `operation` is the client's number, which may be invalid."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """A resource's requested changes."""

    resource_type: int
    name: str
    changes: Sequence[Change]


class ConfiguredBroker(Protocol):
    """A broker, as the code that changes settings uses it. `Node` implements this interface."""

    config: BrokerConfig
    configs: ConfigEntries
    dynamic_settings: DynamicSettings
    forwarding: Forwarding | None
    manager: LogManager
    node_id: int
    plane: MetadataPlane | None
    topic_changes: TopicChanges
    topics: Topics

    def has_settings_of(self, broker_id: int) -> bool:
        """Whether this node can change the settings of the broker with this id."""

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""


def change_all(
    broker: ConfiguredBroker, resources: Sequence[Resource], *, incremental: bool, validate_only: bool
) -> Generator[Elsewhere | Until | None, Any, list[AlterConfigsResourceResponse]]:
    """Change each resource, or only validate the changes. A resource that the request names twice is not changed."""
    times = yield from counted((resource.resource_type, resource.name) for resource in resources)

    def tried(one: Resource) -> Steps[AlterConfigsResourceResponse]:
        try:
            if times[one.resource_type, one.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names a resource more than once")
            yield from change(broker, one, incremental=incremental, validate_only=validate_only)
        except Exception as error:
            refusal = api_error_of(error)
            return answer(one, refusal.code, refusal.reason)
        return answer(one)

    # For other resources this waits at most for a topic of the same name.
    changed = yield from broker.topic_changes.side_by_side(Job(one.name, tried(one)) for one in resources)
    yield from discarded(None, times)
    return changed


def answer(resource: Resource, code: ErrorCode = ErrorCode.NONE, reason: str | None = None) -> AlterConfigsResourceResponse:
    """Return the response's element for a resource, for AlterConfigs or IncrementalAlterConfigs. If `code` is NONE, the changes
    are valid, and were made unless only validated.
    """
    return AlterConfigsResourceResponse(code, reason, resource.resource_type, resource.name)


def check_changes(resource: Resource, *, with_operations: bool = True) -> None:
    """Raise ApiError for changes that contradict each other or are incomplete; the current values are not checked."""
    names = [one.name for one in resource.changes]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request names a property more than once")
    nulls = [one.name for one in resource.changes if one.value is None and one.operation != Operation.DELETE]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the value is missing for {', '.join(nulls)}")
    unknown = [one for one in resource.changes if with_operations and one.operation not in _OPERATIONS]
    if unknown:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"operation {unknown[0].operation} on a property is unknown")


def change(broker: ConfiguredBroker, resource: Resource, *, incremental: bool, validate_only: bool) -> Steps[None]:
    """Change a resource, or only validate the changes. Raises ApiError, StorageError."""
    check_changes(resource)
    if resource.resource_type == TOPIC:
        yield from _change_topic(broker, resource, incremental=incremental, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        yield from _change_broker(broker, resource, incremental=incremental, validate_only=validate_only)
    elif resource.resource_type == BROKER_LOGGER and incremental:
        check_broker_id(broker, resource.name)
        _change_loggers(resource.changes, validate_only=validate_only)
    elif resource.resource_type == GROUP and broker.config.has_consumer_groups:
        yield from _change_group(broker, resource, incremental=incremental, validate_only=validate_only)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this broker cannot alter configs of resource type {resource.resource_type}")


def check_broker_id(broker: ConfiguredBroker, name: str) -> None:
    """Raise ApiError unless `name` is this broker's id."""
    try:
        is_ours = broker.has_settings_of(int(name))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a broker id is a number, not {name!r}") from None
    if not is_ours:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name}")


# --- topics


def _change_topic(broker: ConfiguredBroker, resource: Resource, *, incremental: bool, validate_only: bool) -> Steps[None]:
    name = resource.name
    view = broker.topics.get(name)
    before = {} if view is None else broker.topics.properties(name)
    kept = view is not None and not broker.manager.is_configuration_known(name)
    properties = topic_properties(broker, resource, before, incremental=incremental, kept=kept)
    if not validate_only and properties != before:
        yield from broker.topics.configuration(name, properties)


def topic_properties(
    broker: ConfiguredBroker, resource: Resource, before: Mapping[str, str], *, incremental: bool, kept: bool = False
) -> dict[str, str]:
    """Return a topic's properties after the changes. With `kept`, properties in `before` that the changes do not mention are
    kept. Raises ApiError for an invalid change.
    """
    name = resource.name
    if incremental:
        properties = dict(before)
        for one in resource.changes:
            _apply(properties, one, _TOPIC_LISTS)
    else:
        properties = {**(before if kept else {}), **{one.name: one.value or "" for one in resource.changes}}
    _check_sizes(properties)
    if not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "the topic's name is missing: topics have no common properties, but the broker's defaults can be set",
        )
    reason = why_invalid(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    broker.configs.check_topic(properties)
    if broker.topics.get(name) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return properties


def _check_sizes(properties: Mapping[str, str]) -> None:
    """Raise ApiError for a value that is too long for the metadata or a response. Appending can make a list too long."""
    for name, value in properties.items():
        if len(value) * 4 > MAX_STRING_BYTES and len(value.encode()) > MAX_STRING_BYTES:
            reason = f"{name}: the value cannot be set, because it exceeds the maximum size of {MAX_STRING_BYTES} bytes"
            raise ApiError(ErrorCode.INVALID_CONFIG, reason)


def _apply(properties: dict[str, str], change: Change, lists: Mapping[str, str]) -> None:
    """Apply one change to a resource's own properties. `lists` has the resource type's list properties and their defaults.
    Raises ApiError.
    """
    name, value = change.name, change.value or ""
    if change.operation == Operation.SET:
        properties[name] = value
    elif change.operation == Operation.DELETE:
        properties.pop(name, None)
    else:
        if name not in lists:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: nothing can be appended to it or subtracted from it")
        has = [part for part in properties.get(name, lists[name]).split(",") if part]
        if change.operation == Operation.APPEND:
            known = set(has)
            has += [part for part in dict.fromkeys(value.split(",")) if part not in known]
        else:
            going = Counter(value.split(","))  # Each value to subtract removes the first equal value of the list.
            everything, has = has, []
            for part in everything:
                if going[part]:
                    going[part] -= 1
                else:
                    has.append(part)
        properties[name] = ",".join(has)


_DEFAULTS = {name: str(value) for name, value in LogConfig().to_properties().items()}
_TOPIC_LISTS = {name: _DEFAULTS[name] for name, kind in LogConfig.kinds().items() if kind == "LIST"}
_BROKER_LISTS = {"log.cleanup.policy": _DEFAULTS["cleanup.policy"], "metric.reporters": ""}


# --- the broker


def _change_broker(broker: ConfiguredBroker, resource: Resource, *, incremental: bool, validate_only: bool) -> Steps[None]:
    if resource.name:
        check_broker_id(broker, resource.name)
    settings = broker.dynamic_settings
    before = settings.of(resource.name)
    after = broker_settings(broker, resource, before, incremental=incremental)
    if not validate_only and after != before:
        yield from settings.change(resource.name, after)
        log_broker_settings(resource.name, after)


def broker_settings(
    broker: ConfiguredBroker, resource: Resource, before: Mapping[str, str], *, incremental: bool
) -> dict[str, str]:
    """Return the settings of this broker, or of all brokers (empty name), after the changes. Raises ApiError for an invalid
    change.
    """
    if resource.name:
        check_broker_id(broker, resource.name)
    after = dict(before) if incremental else {}
    for one in resource.changes:
        _apply(after, one, _BROKER_LISTS)
    _check_sizes(after)
    broker.dynamic_settings.check(after, for_all=not resource.name)
    return after


def log_broker_settings(name: str, settings: Mapping[str, str]) -> None:
    """Log the new settings of this broker, or of all brokers (empty name), except for values that may be secret."""
    shown = "".join(f" {key}={HIDDEN if is_sensitive(key) else settings[key]}" for key in sorted(settings))
    logger.info("broker %s: settings changed%s", name or "(all)", one_line(shown))


# --- groups


def _change_group(broker: ConfiguredBroker, resource: Resource, *, incremental: bool, validate_only: bool) -> Steps[None]:
    if not resource.name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "the group's name is missing: groups have no common settings, but the broker's defaults can be set",
        )
    before = broker.image.configs.get((GROUP, resource.name), {})
    after = dict(before) if incremental else {}
    for one in resource.changes:
        _apply(after, one, {})
    try:
        check_group_settings(broker.config.consumer_groups, after)
    except InvalidArgumentError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not validate_only and after != before:
        yield from broker.manager.settings.change_group(resource.name, after)


# --- loggers


def loggers() -> dict[str, logging.Logger]:
    """Return Tidelog's loggers by the names that clients use."""
    known = logging.Logger.manager.loggerDict
    names = sorted(name for name, one in known.items() if name.startswith("tidelog.") and isinstance(one, logging.Logger))
    return {ROOT_LOGGER: logging.getLogger("tidelog"), **{name: logging.getLogger(name) for name in names}}


def level_name(logger: logging.Logger) -> str:
    """Return the log4j name of a logger's effective level."""
    level = logger.getEffectiveLevel()
    return next((name for name, number in LOG_LEVELS.items() if level >= number), "TRACE")


def _change_loggers(changes: Sequence[Change], *, validate_only: bool) -> None:
    known = loggers()
    for one in changes:
        if one.operation not in (Operation.SET, Operation.DELETE):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a logger's level can only be set or deleted")
        if one.name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"logger {one.name!r} does not exist")
        if one.operation == Operation.DELETE and one.name == ROOT_LOGGER:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the level of {ROOT_LOGGER} cannot be deleted")
        if one.operation == Operation.SET and one.value not in LOG_LEVELS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{one.value!r} is not a log level: expected one of {', '.join(LOG_LEVELS)}")
    if not validate_only:
        for one in changes:
            known[one.name].setLevel(LOG_LEVELS[one.value or ""] if one.operation == Operation.SET else logging.NOTSET)
