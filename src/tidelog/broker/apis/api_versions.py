"""ApiVersions (18): the served APIs and their versions, derived from the table in `dispatcher`.

A request in an unsupported version gets UNSUPPORTED_VERSION, in a version 0 response that lists the supported versions of
ApiVersions, so that the client can retry. The response header always has version 0: a client must be able to read the header
before it knows the broker's versions.

The response lists the APIs, versions and features that Kafka 3.9.1 lists, because clients infer the broker's release from them:

| broker | APIs and versions | features |
|---|---|---|
| standalone | those of a KRaft broker | `FEATURES_3_9` |
| member of a KRaft cluster | the same; forwarded APIs only in versions that the controllers support | the same |
| ... whose ``metadata.version`` is newer than 3.9's | all served versions, because newer brokers need them | all known features |
| member of a ZooKeeper cluster | those of a ZooKeeper broker | none |

Some APIs are also served in later versions than those listed, for clients that send no ApiVersions request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.handling.access import NOTHING
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.peers.forwarded_apis import forwarded_with
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.request import Request
from tidelog.metadata.versions import FEATURES_3_9, LEVEL_3_9
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import REQUESTS, Versions
from tidelog.wire.messages.alter_configs import AlterConfigsRequest
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

ACCESS = NOTHING


_FIRST_LEVEL_0 = 4
"""The first version whose responses include features with levels from 0; older clients cannot read those (KAFKA-17492)."""

LAST_OF_3_9: Final[Mapping[str, int]] = {
    "Produce": 11,
    "Fetch": 17,
    "ListOffsets": 9,
    "EndTxn": 4,
    "WriteTxnMarkers": 1,
    "TxnOffsetCommit": 4,
    "ConsumerGroupHeartbeat": 0,
    "ConsumerGroupDescribe": 0,
    "AlterPartitionReassignments": 0,
    "UpdateFeatures": 1,
    "DescribeCluster": 1,
    "AddRaftVoter": 0,
}
"""The highest version that Kafka 3.9.1 lists, for APIs that this broker also serves in later versions."""

_CONSUMER_GROUPS: Final = frozenset({"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"})
"""APIs that are listed in all versions if consumer groups are on, so that clients of Kafka 4 can use patterns."""

_ONLY_KRAFT: Final = frozenset(
    {
        "DescribeQuorum",
        "UnregisterBroker",
        "ListClientMetricsResources",
        "DescribeTopicPartitions",
        "AddRaftVoter",
        "RemoveRaftVoter",
    }
)
"""APIs that a broker in a ZooKeeper cluster does not list."""

_CONFIGS = frozenset({AlterConfigsRequest.API_KEY, IncrementalAlterConfigsRequest.API_KEY})

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, message: ApiVersionsRequest, request: Request) -> ApiVersionsResponse:
    if request.api_version >= 3 and not (
        _NAME.fullmatch(message.client_software_name) and _NAME.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    plane = node.plane
    if plane is None:
        image, offset = node.manager.image, node.manager.metadata.end_offset
        supported: Mapping[str, tuple[int, int]] = FEATURES_3_9
        keys = _listed(node.served.items(), has_consumers=node.groups.consumers.is_enabled)
    elif plane.controller_id is not None:
        return _of_zookeeper(node, plane)
    else:
        image, offset = plane.image, plane.metadata_offset
        has_consumers = node.groups.consumers.is_enabled
        is_later = image.metadata_version > LEVEL_3_9
        supported = plane.supported_features if is_later else FEATURES_3_9
        keys = _both_sides(_listed(_all_served(node, plane), is_later=is_later, has_consumers=has_consumers), plane)
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in sorted(supported.items())
            if low or request.api_version >= _FIRST_LEVEL_0
        ],
        finalized_features_epoch=offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in sorted(image.features.items()) if name in supported
        ],
    )


def _of_zookeeper(node: Node, plane: MetadataPlane) -> ApiVersionsResponse:
    keys = _both_sides([one for one in _listed(_all_served(node, plane)) if _name(one.api_key) not in _ONLY_KRAFT], plane)
    # Kafka numbers the changes of ZooKeeper's features node, which exists from 2.7 on. In practice the node is never changed.
    cluster = node.config.cluster
    zookeeper = None if cluster is None else cluster.zookeeper
    has_features = zookeeper is not None and zookeeper.protocol.is_at_least("2.7-IV0")
    return ApiVersionsResponse(api_keys=keys, finalized_features_epoch=0 if has_features else -1)


def _all_served(node: Node, plane: MetadataPlane) -> Iterable[tuple[int, Versions]]:
    return [*node.served.items(), *((one.key, one.served) for one in forwarded_with(plane).values())]


def _listed(served: Iterable[tuple[int, Versions]], *, is_later: bool = False, has_consumers: bool = False) -> list[ApiVersion]:
    """Return the APIs to list, with their versions, sorted by API key. With `is_later`, list all served versions of every API;
    with `has_consumers`, all served versions of the APIs for consumer groups (KIP-848).
    """
    last = {} if is_later else LAST_OF_3_9
    if has_consumers:
        last = {name: end for name, end in last.items() if name not in _CONSUMER_GROUPS}
    return [ApiVersion(key, first, min(end, last.get(_name(key), end))) for key, (first, end) in sorted(served)]


def _name(api_key: int) -> str:
    return REQUESTS[api_key].API_NAME


def _both_sides(keys: list[ApiVersion], plane: MetadataPlane) -> list[ApiVersion]:
    """Return the APIs, with forwarded ones limited to the versions that the controllers support. Without a connection to a
    controller, return them unchanged.
    """
    offered = plane.controller_versions
    if offered is not None:
        forwarded = forwarded_with(plane)
        bounded = forwarded.keys() if plane.config_writer is not None else forwarded.keys() | _CONFIGS
        keys = [_common(one, offered.get(one.api_key)) if one.api_key in bounded else one for one in keys]
    return [one for one in keys if one.min_version <= one.max_version]


def _common(ours: ApiVersion, theirs: tuple[int, int] | None) -> ApiVersion:
    low, high = theirs or (0, -1)
    return ApiVersion(ours.api_key, max(ours.min_version, low), min(ours.max_version, high))


def unsupported_version() -> ApiVersionsResponse:
    """Return the response to a request in an unsupported version. It must be sent in version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(ApiVersionsRequest.API_KEY, *API.served)]
    )


API = Api(ApiVersionsRequest, ApiVersionsResponse, Versions(0, 4), ACCESS, handle)
