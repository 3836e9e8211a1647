"""DescribeClientQuotas (48): returns the quotas that match a filter, from the metadata (KIP-546).

A filter has at most one component for each entity type. A component matches the entity with a given name (0), the default entity
(1), or any entity (2). `strict` excludes entities that also have a type that the filter lacks.
"""

from __future__ import annotations

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.quota_limits import CLIENT_ID, IP, USER
from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, grouped, picked, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

ACCESS = whole(
    cluster(Operation.DESCRIBE_CONFIGS),
    refused=lambda message, code: DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None),
)

TYPES = (USER, CLIENT_ID, IP)
NAMED, DEFAULT, ANY = range(3)

Entity = tuple[tuple[str, str | None], ...]


def handle(node: Node, message: DescribeClientQuotasRequest, request: Request) -> Work:
    # If there are more components than entity types, one of them is refused.
    components = message.components[: len(TYPES) + 1]
    yield from discarded(message)
    try:
        wanted = _filter(components)
    except ApiError as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=refusal.reason, entries=None)
    is_strict = message.strict
    quotas = yield from picked(list(node.image.quotas.items()), lambda one: _matches(one[0][0], wanted, strict=is_strict), 256)
    values = yield from grouped((entity, ValueData(key, value)) for (entity, key), value in quotas)
    made = (EntryData([EntityData(*part) for part in entity], found) for entity, found in values.items())
    return DescribeClientQuotasResponse(entries=(yield from slowly(made, 256)))


def _filter(components: list[ComponentData]) -> dict[str, ComponentData]:
    """Return the filter's components by entity type. Raises ApiError if the filter is invalid."""
    wanted: dict[str, ComponentData] = {}
    for one in components:
        name = one.entity_type
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if name in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {name} cannot appear more than once in the filter.")
        if name not in TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {name}")
        if one.match_type not in (NAMED, DEFAULT, ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
        if (one.match is None) is (one.match_type == NAMED):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"match type {one.match_type} cannot have name {one.match!r}")
        wanted[name] = one
    if IP in wanted and len(wanted) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an ip entity cannot be combined with a user or a client id")
    return wanted


def _matches(entity: Entity, wanted: dict[str, ComponentData], *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    parts = dict(entity)
    return all(name in parts and (one.match_type == ANY or parts[name] == one.match) for name, one in wanted.items())


API = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, Versions(0, 1), ACCESS, handle)
