"""Changes of properties in a cluster: looked at here first, then sent on to the controllers, who keep them (ConfigAdminManager).

| resource | here | sent on |
|---|---|---|
| topic, client metrics, group | | yes |
| broker, this one's id or empty name | checked as `config_changes` does, as controllers do not | if it may be |
| broker, another id | refused: each broker checks its own | |
| broker's loggers | changed | |
| any other, or one that is named twice | refused | |

What the controllers have changed comes back in the metadata, to all brokers, and takes effect then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.cluster.forwarding import WHY, Forwarding, code_of
from tidelog.broker.refused import Refused, refusal_of
from tidelog.broker.server.slices import Elsewhere, Until
from tidelog.broker.settings.config_changes import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    TOPIC,
    Changed,
    Resource,
    change,
    check_changes,
)
from tidelog.errors import TidelogError, UnsupportedVersionError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.headers import read_response, request_chunks

if TYPE_CHECKING:
    from tidelog.broker.api import Request
    from tidelog.broker.node import Node

GROUP = 32

_CONTROLLERS = frozenset({TOPIC, CLIENT_METRICS, GROUP})


def change_all_forwarded(
    node: Node, forwarding: Forwarding, message: Any, resources: Sequence[Resource], request: Request, *, incremental: bool
) -> Generator[Elsewhere | Until | None, Any, list[Changed]]:
    """Do what `change_all` does, in a cluster. `resources` are those of `message`.

    Raises UnsupportedVersionError where another controller leads, which does not take the request's version.
    """
    times = Counter((one.resource_type, one.name) for one in resources)
    outcomes: dict[int, Changed] = {}
    for number, resource in enumerate(resources):
        try:
            if times[resource.resource_type, resource.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource stands more than once in the request")
            is_done = yield from _looked_at(node, resource, incremental=incremental, validate_only=message.validate_only)
        except Exception as error:
            refusal = refusal_of(error)
            outcomes[number] = Changed(resource, refusal.code, refusal.reason)
        else:
            if is_done:
                outcomes[number] = Changed(resource, ErrorCode.NONE, None)
        if number % 16 == 15:
            yield None
    left = [number for number in range(len(resources)) if number not in outcomes]
    if left:
        rest = type(message)(resources=[message.resources[number] for number in left], validate_only=message.validate_only)
        answers = yield from _forwarded(forwarding, rest, request)
        for number in left:
            resource = resources[number]
            outcomes[number] = _outcome(resource, answers)
    return [outcomes[number] for number in range(len(resources))]


def _looked_at(node: Node, resource: Resource, *, incremental: bool, validate_only: bool) -> Generator[Any, Any, bool]:
    """Whether a resource's changes are made already; else the controllers make them. Raises Refused."""
    if resource.resource_type in _CONTROLLERS:
        check_changes(resource, with_operations=False)
        return False
    is_logger = resource.resource_type == BROKER_LOGGER
    yield from change(node, resource, incremental=incremental, validate_only=validate_only or not is_logger)
    return resource.resource_type != BROKER


Answers = dict[tuple[int, str], tuple[int, str | None]] | ErrorCode


def _outcome(resource: Resource, answers: Answers) -> Changed:
    if isinstance(answers, ErrorCode):
        return Changed(resource, answers, WHY.get(answers))
    code, reason = answers.get((resource.resource_type, resource.name), (ErrorCode.UNKNOWN_SERVER_ERROR, None))
    try:
        return Changed(resource, ErrorCode(code), reason)
    except ValueError:
        return Changed(resource, ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}: {reason}")


def _forwarded(forwarding: Forwarding, message: Message, request: Request) -> Generator[Elsewhere | Until | None, Any, Answers]:
    """Return what the controller says of each resource, or why it says nothing."""
    version = request.api_version
    chunks = yield Elsewhere(partial(request_chunks, message, version, request.correlation_id, request.client_id))
    frame = b"".join(chunks)[4:]
    try:
        answer = yield Until(partial(forwarding.send, frame, request.peer_host))
        _, response = yield Elsewhere(partial(read_response, RESPONSES[message.API_KEY], version, answer))
    except UnsupportedVersionError:
        raise
    except TidelogError as error:
        return code_of(error)
    return {(one.resource_type, one.resource_name): (one.error_code, one.error_message) for one in response.responses}
