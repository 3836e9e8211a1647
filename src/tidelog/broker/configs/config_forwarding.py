"""Changes properties in a cluster: they are checked here, then stored by the controllers or in ZooKeeper (Kafka's
ConfigAdminManager).

| resource | controllers of KRaft | ZooKeeper |
|---|---|---|
| topic | forwarded | checked and written |
| broker, this one's id or empty name | checked here, because controllers do not, and forwarded | checked and written |
| broker, another id | refused: each broker checks its own | the same |
| broker's loggers | changed here | the same |
| client metrics, group | forwarded | refused |
| any other, or a duplicate | refused | the same |

All brokers get the changes with the metadata, and then apply them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from tidelog.broker.configs.config_changes import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfiguredBroker,
    Resource,
    answer,
    broker_settings,
    change,
    change_all,
    check_broker_id,
    check_changes,
    log_broker_settings,
    topic_properties,
)
from tidelog.broker.peers.forwarding import TIMEOUT_S, WHY, Forwarding, code_of
from tidelog.broker.peers.metadata_plane import ConfigWriter
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Until, awaited, counted, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.errors import BrokerUnreachableError, TidelogError, UnsupportedVersionError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse

_CONTROLLERS = frozenset({TOPIC, CLIENT_METRICS, GROUP})
_WRITTEN = frozenset({TOPIC, BROKER})


def altered(
    broker: ConfiguredBroker, message: Any, resources: Sequence[Resource], request: Request, *, incremental: bool
) -> Generator[Elsewhere | Until | None, Any, list[AlterConfigsResourceResponse] | None]:
    """Return the response for each resource of `message`, or None if the client must request the API versions again."""
    if broker.forwarding is None:
        return (yield from change_all(broker, resources, incremental=incremental, validate_only=message.validate_only))
    try:
        return (yield from change_all_forwarded(broker, broker.forwarding, message, resources, request, incremental=incremental))
    except UnsupportedVersionError:
        return None  # Another controller is active.


def change_all_forwarded(
    broker: ConfiguredBroker,
    forwarding: Forwarding,
    message: Any,
    resources: Sequence[Resource],
    request: Request,
    *,
    incremental: bool,
) -> Generator[Elsewhere | Until | None, Any, list[AlterConfigsResourceResponse]]:
    """Change the resources of `message` in a cluster, like `change_all`.

    Raises UnsupportedVersionError if the active controller does not support the request's version.
    """
    times = yield from counted((resource.resource_type, resource.name) for resource in resources)
    outcomes: list[AlterConfigsResourceResponse | None] = []
    left = []
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    for number, resource in enumerate(resources):
        try:
            if times[resource.resource_type, resource.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names a resource more than once")
            is_done = yield from _looked_at(
                broker, resource, deadline, incremental=incremental, validate_only=message.validate_only
            )
        except BrokerUnreachableError as error:
            outcomes.append(answer(resource, code_of(error), str(error)))
        except Exception as error:
            refusal = api_error_of(error)
            outcomes.append(answer(resource, refusal.code, refusal.reason))
        else:
            outcomes.append(answer(resource) if is_done else None)
            if not is_done:
                left.append(message.resources[number])
        if number % 16 == 15:
            yield None
    said: Answers = {}
    if left:
        rest = type(message)(resources=left, validate_only=message.validate_only)
        said = yield from _forwarded(forwarding, rest, request)
    made = (outcome or _outcome(resource, said) for outcome, resource in zip(outcomes, resources, strict=True))
    changed = yield from slowly(made, 64)
    yield from discarded(None, times, outcomes)
    return changed


def _looked_at(
    broker: ConfiguredBroker, resource: Resource, deadline: float, *, incremental: bool, validate_only: bool
) -> Generator[Any, Any, bool]:
    """Check a resource's changes, and make them if this broker makes such changes itself. Return True if the resource is done,
    False if the controllers must make the changes.

    Raises ApiError, BrokerUnreachableError.
    """
    writer = None if broker.plane is None else broker.plane.config_writer
    if writer is not None and resource.resource_type in _WRITTEN:
        yield from _written(broker, writer, resource, deadline, incremental=incremental, validate_only=validate_only)
        return True
    if writer is None and resource.resource_type in _CONTROLLERS:
        check_changes(resource, with_operations=False)
        return False
    is_logger = resource.resource_type == BROKER_LOGGER
    yield from change(broker, resource, incremental=incremental, validate_only=validate_only or not is_logger)
    return resource.resource_type != BROKER


def _written(
    broker: ConfiguredBroker, writer: ConfigWriter, resource: Resource, deadline: float, *, incremental: bool, validate_only: bool
) -> Generator[Any, Any, None]:
    """Write a topic's properties, or the settings of this broker or of all brokers, with `writer`."""
    check_changes(resource)
    if resource.resource_type == BROKER and resource.name:
        check_broker_id(broker, resource.name)
        resource = resource._replace(name=str(broker.node_id))
    after = topic_properties if resource.resource_type == TOPIC else broker_settings
    changed = partial(after, broker, resource, incremental=incremental)
    key = resource.resource_type, resource.name
    # Refuse changes that are known to be invalid here, without asking ZooKeeper.
    changed(broker.image.configs.get(key, {}))
    if validate_only:
        return
    timeout_s = max(deadline - asyncio.get_running_loop().time(), 0)
    properties = yield from awaited(writer.change(key, changed, timeout_s))
    if resource.resource_type == BROKER:
        log_broker_settings(resource.name, properties)


Answers = dict[tuple[int, str], tuple[int, str | None]] | ErrorCode


def _outcome(resource: Resource, said: Answers) -> AlterConfigsResourceResponse:
    if isinstance(said, ErrorCode):
        return answer(resource, said, WHY.get(said))
    code, reason = said.get((resource.resource_type, resource.name), (ErrorCode.UNKNOWN_SERVER_ERROR, None))
    try:
        return answer(resource, ErrorCode(code), reason)
    except ValueError:
        return answer(resource, ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}: {reason}")


def _forwarded(forwarding: Forwarding, message: Message, request: Request) -> Generator[Elsewhere | Until | None, Any, Answers]:
    """Return the controller's result for each resource, or an error code if the controller gave no results."""
    version = request.api_version
    frame = yield Elsewhere(partial(_frame, message, version, request.correlation_id, request.client_id))
    try:
        answer = yield Until(partial(forwarding.send, frame, request))
        said: Answers = yield Elsewhere(partial(_answers, RESPONSES[message.API_KEY], version, answer))
        return said
    except UnsupportedVersionError:
        raise
    except TidelogError as error:
        return code_of(error)


def _frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    return b"".join(request_chunks(message, version, correlation_id, client_id))[4:]


def _answers(response: type[Any], version: int, frame: bytes) -> Answers:
    _, message = read_response(response, version, frame)
    return {(one.resource_type, one.resource_name): (one.error_code, one.error_message) for one in message.responses}
