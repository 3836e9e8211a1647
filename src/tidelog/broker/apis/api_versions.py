"""ApiVersions (18): the served APIs and their versions, derived from the table in `dispatcher`.

An unsupported version is answered with UNSUPPORTED_VERSION in version 0, with the supported versions of ApiVersions, so that the
client can retry. The response header always has version 0: a client must be able to read it before it knows the broker's
versions.

A cluster member also lists the APIs that it forwards to the controllers, in the versions that both support, and those of the
cluster's finalized features that this broker implements.
"""

from __future__ import annotations

import re

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import NOTHING
from tidelog.broker.cluster.forwarded_apis import FORWARDED
from tidelog.broker.cluster.metadata_plane import MetadataPlane
from tidelog.broker.node import Node
from tidelog.broker.server.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_configs import AlterConfigsRequest
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SERVED = Versions(0, 4)
"""Changes by version: the table of `tidelog.wire.messages.api_versions`."""

ACCESS = NOTHING


_FIRST_LEVEL_0 = 4
"""Before this version, features whose levels begin at 0 are left out, because older clients cannot read them (KAFKA-17492)."""

_CONTROLLERS = FORWARDED.keys() | {AlterConfigsRequest.API_KEY, IncrementalAlterConfigsRequest.API_KEY}

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, message: ApiVersionsRequest, request: Request) -> ApiVersionsResponse:
    """Answer with all APIs of the node."""
    if request.api_version >= 3 and not (
        _NAME.fullmatch(message.client_software_name) and _NAME.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if node.plane is not None:
        return _of_member(node, node.plane, request.api_version)
    return ApiVersionsResponse(api_keys=_served(node))


def _of_member(node: Node, plane: MetadataPlane, version: int) -> ApiVersionsResponse:
    keys = _served(node)
    keys += [_versions(one.key, one.served) for one in FORWARDED.values()]
    offered = plane.controller_versions
    if offered is not None:
        bounded = FORWARDED.keys() if plane.config_writer is not None else _CONTROLLERS
        keys = [_common(one, offered.get(one.api_key)) if one.api_key in bounded else one for one in keys]
    return ApiVersionsResponse(
        api_keys=sorted((one for one in keys if one.min_version <= one.max_version), key=lambda one: one.api_key),
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in sorted(plane.supported_features.items())
            if low or version >= _FIRST_LEVEL_0
        ],
        finalized_features_epoch=plane.metadata_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name, level, level)
            for name, level in sorted(plane.image.features.items())
            if name in plane.supported_features
        ],
    )


def _common(ours: ApiVersion, theirs: tuple[int, int] | None) -> ApiVersion:
    low, high = theirs or (0, -1)
    return ApiVersion(ours.api_key, max(ours.min_version, low), min(ours.max_version, high))


def unsupported_version() -> ApiVersionsResponse:
    """Return the response to an unsupported version. It must be sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_versions(ApiVersionsRequest.API_KEY, SERVED)])


def _served(node: Node) -> list[ApiVersion]:
    return [_versions(key, served) for key, served in node.served.items()]


def _versions(key: int, served: Versions) -> ApiVersion:
    return ApiVersion(key, served.first, served.last)


API = Api(ApiVersionsRequest, ApiVersionsResponse, SERVED, ACCESS, handle)
