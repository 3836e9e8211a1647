"""ApiVersions (18): which APIs are served, in which versions. Derived from the table in `dispatcher`.

A version that is not served gets UNSUPPORTED_VERSION in version 0 with the versions of ApiVersions, so that the client can ask
again. The response's header is always of version 0: a client that does not know what it talks to must be able to read it.

A member of a cluster also names the APIs that it has the controllers answer, in the versions that both sides take, and features:
of those that the cluster has finalized the ones that this broker behaves by. Clients go by what they see here.
"""

from __future__ import annotations

import re

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import NOTHING
from tidelog.broker.cluster.forwarded_apis import forwarded_with
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
"""Before this version a feature whose levels begin at 0 is left out: clients did not expect one (KAFKA-17492)."""

_CONFIGS = frozenset({AlterConfigsRequest.API_KEY, IncrementalAlterConfigsRequest.API_KEY})

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, message: ApiVersionsRequest, request: Request) -> ApiVersionsResponse:
    """Answer with every API of the node."""
    if request.api_version >= 3 and not (
        _NAME.fullmatch(message.client_software_name) and _NAME.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if node.plane is not None:
        return _of_member(node, node.plane, request.api_version)
    return ApiVersionsResponse(api_keys=_served(node))


def _of_member(node: Node, plane: MetadataPlane, version: int) -> ApiVersionsResponse:
    keys = _served(node)
    forwarded = forwarded_with(plane)
    keys += [_versions(one.key, one.served) for one in forwarded.values()]
    offered = plane.controller_versions
    if offered is not None:
        bounded = forwarded.keys() if plane.config_writer is not None else forwarded.keys() | _CONFIGS
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
    """Answer to a version that is not served; to be sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_versions(ApiVersionsRequest.API_KEY, SERVED)])


def _served(node: Node) -> list[ApiVersion]:
    return [_versions(key, served) for key, served in node.served.items()]


def _versions(key: int, served: Versions) -> ApiVersion:
    return ApiVersion(key, served.first, served.last)


API = Api(ApiVersionsRequest, ApiVersionsResponse, SERVED, ACCESS, handle)
