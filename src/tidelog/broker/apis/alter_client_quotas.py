"""AlterClientQuotas (49): sets and removes client quotas (KIP-546). A standalone broker stores them in its metadata log.

In a cluster the request is forwarded to the controllers (`peers.forwarded_apis`). The checks and their order are those of
Kafka's ClientQuotaControlManager. A refused entity gets INVALID_REQUEST; other entities are not affected:

| refused | |
|---|---|
| an entity | without any component, with an unknown type, with an empty name; an address together with a user or a client id |
| an `ip` entity | that is neither an address nor a resolvable host name |
| a quota | that does not apply to its entity, is set twice, is not above 0, is too large, or must be a whole number and is not |
| an entity | that occurs earlier in the same request |

A request with more than 10,000 changes is refused as a whole with POLICY_VIOLATION.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Generator
from typing import Any, NamedTuple

from tidelog.broker.handling.access import cluster, whole, why
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from tidelog.broker.quotas.connection_quotas import CONNECTION_CREATION_RATE
from tidelog.broker.quotas.quota_limits import CLIENT_ID, IP, USER
from tidelog.broker.requests.api_error import MAX_CHANGED, ApiError, api_error_of, too_many_changes
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Until, Work, grouped, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.config import INT32_MAX, INT64_MAX
from tidelog.metadata.records import ClientQuotaRecord
from tidelog.metadata.records import EntityData as RecordEntity
from tidelog.security.acl import Operation
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

ACCESS = whole(
    cluster(Operation.ALTER_CONFIGS),
    refused=lambda message, code: AlterClientQuotasResponse(
        entries=[EntryResult(code, why(code), one.entity) for one in message.entries]
    ),
)

JOB = "client quotas"
"""The job name under which quota changes run one at a time. It is not a valid topic name."""

_MOST: dict[str, float | None] = {
    PRODUCER_BYTE_RATE: INT64_MAX,
    CONSUMER_BYTE_RATE: INT64_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The largest value of each quota that must be a whole number; None for a quota that may be any number above 0."""

_MOST_OF_IPS: dict[str, float | None] = {CONNECTION_CREATION_RATE: INT32_MAX}

_EPSILON = 1e-6
_TYPES = (USER, CLIENT_ID, IP)

_Entity = frozenset[tuple[str, str | None]]


class _Checked(NamedTuple):
    """An entry of the request, the entity that it names, and the error if the entry is refused."""

    entry: EntryData
    entity: _Entity
    refusal: ApiError | None


def handle(node: Node, message: AlterClientQuotasRequest, request: Request) -> Work:
    checked: list[_Checked] = []
    seen: set[_Entity] = set()
    for count, entry in enumerate(message.entries):
        entity = frozenset((part.entity_type, part.entity_name) for part in entry.entity[: len(_TYPES) + 1])
        try:
            if entity in seen:
                raise _refused("the request names this entity more than once")
            seen.add(entity)
            yield from _check(entry)
        except ApiError as refusal:
            checked.append(_Checked(entry, entity, api_error_of(refusal)))
        else:
            checked.append(_Checked(entry, entity, None))
        if count % 64 == 63:
            yield None
    refused: ApiError | None = None
    if not message.validate_only:
        (refused,) = yield from node.topic_changes.side_by_side([Job(JOB, _change(node, checked))])
    results = yield from slowly((_result(one, one.refusal or refused) for one in checked), 256)
    yield from discarded(None, checked, seen)
    return AlterClientQuotasResponse(entries=results)


def _result(one: _Checked, why: ApiError | None) -> EntryResult:
    if why is None:
        return EntryResult(error_message=None, entity=one.entry.entity)
    return EntryResult(why.code, why.reason, one.entry.entity)


def _change(node: Node, checked: list[_Checked]) -> Steps[ApiError | None]:
    """Write all accepted changes together. Return the error if they could not be written, otherwise None."""
    now = node.image.quotas
    before = yield from grouped(((frozenset(parts), (key, value)) for (parts, key), value in list(now.items())), 1024)
    records = []
    for count, one in enumerate(checked):
        if one.refusal is None:
            known = dict(before.get(one.entity, ()))
            names = [RecordEntity(part.entity_type, part.entity_name) for part in one.entry.entity]
            for op in one.entry.ops:
                if op.remove and op.key in known:
                    records.append(ClientQuotaRecord(names, op.key, 0.0, remove=True))
                elif not op.remove and known.get(op.key) != op.value:
                    records.append(ClientQuotaRecord(names, op.key, op.value, remove=False))
        if len(records) > MAX_CHANGED:
            return too_many_changes()
        if count % 64 == 63:
            yield None
    if records:
        try:
            yield node.manager.metadata.append(records)
        except Exception as error:
            return api_error_of(error)
        finally:
            node.quotas.take_over(node.image.quotas)
    return None


def _check(entry: EntryData) -> Generator[Elsewhere | Until | None, Any, None]:
    """Raise ApiError if the entry's entity or one of its quotas is invalid."""
    keys = [op.key for op in entry.ops]
    if len(set(keys)) < len(keys):
        raise _refused("the request sets a quota of this entity more than once")
    if not entry.entity:
        raise _refused("Invalid empty client quota entity")
    names: dict[str, str | None] = {}
    for part in entry.entity[: len(_TYPES) + 1]:
        if part.entity_type in names:
            raise _refused(f"Entity type {part.entity_type} cannot appear more than once")
        if part.entity_type not in _TYPES:
            raise _refused(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _refused(f"Empty {part.entity_type} not supported")
        names[part.entity_type] = part.entity_name
    most = _MOST
    if IP in names:
        if len(names) > 1:
            raise _refused("an ip entity cannot be combined with a user or a client id")
        address = names[IP]
        if address is not None and not _is_address(address):
            is_host = yield Elsewhere(lambda: _is_host(address))
            if not is_host:
                raise _refused(f"{address} is not a valid IP or resolvable host.")
        most = _MOST_OF_IPS
    for op in entry.ops:
        if not op.remove:
            _check_value(op.key, op.value, most)


def _check_value(key: str, value: float, most: dict[str, float | None]) -> None:
    if key not in most:
        raise _refused(f"Invalid configuration key {key}")
    if not value > 0:
        raise _refused(f"Quota {key} must be greater than 0")
    limit = most[key]
    if limit is None:
        return
    if value > limit:
        raise _refused(f"Proposed value for {key} is too large")
    if abs(value - int(value + _EPSILON)) > _EPSILON:
        raise _refused(f"{key} cannot be a fractional value.")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_host(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


API = Api(AlterClientQuotasRequest, AlterClientQuotasResponse, Versions(0, 1), ACCESS, handle)
