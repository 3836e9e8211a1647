"""UpdateFeatures (57): changes the finalized levels of features (KIP-584). On a standalone broker the levels are fixed: see
`FEATURES_3_9`.

| an update to | result |
|---|---|
| the feature's current level | no error |
| a different level, or an unknown feature | INVALID_UPDATE_VERSION, as in Kafka for an impossible update |
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import shortened
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.metadata.versions import FEATURES_3_9
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

ACCESS = whole(cluster(Operation.ALTER), refused=at_top(UpdateFeaturesResponse))

UPGRADE: Final = 1
UPGRADE_TYPES: Final = (UPGRADE, 2, 3)


def handle(node: Node, message: UpdateFeaturesRequest, request: Request) -> Work:
    results = yield from slowly((_result(node, one) for one in message.feature_updates), 64)
    yield from discarded(message)
    return UpdateFeaturesResponse(results=results)


def _result(node: Node, update: FeatureUpdateKey) -> UpdatableFeatureResult:
    reason = _why_not(node, update)
    if reason is None:
        return UpdatableFeatureResult(update.feature, ErrorCode.NONE, None)
    what = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
    return UpdatableFeatureResult(update.feature, ErrorCode.INVALID_UPDATE_VERSION, shortened(what))


def _why_not(node: Node, update: FeatureUpdateKey) -> str | None:
    upgrade_type = 2 if update.allow_downgrade else update.upgrade_type
    if upgrade_type not in UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if update.feature not in FEATURES_3_9:
        return f"Local controller {node.node_id} does not support this feature."
    low, high = FEATURES_3_9[update.feature]
    if not low <= update.max_version_level <= high:
        return f"Local controller {node.node_id} only supports versions {low}-{high}"
    level = node.manager.image.features.get(update.feature, 0)
    if update.max_version_level == level:
        return None
    if update.max_version_level < level and upgrade_type == UPGRADE:
        return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
    return f"The level of a standalone broker is fixed at {level}."


API = Api(UpdateFeaturesRequest, UpdateFeaturesResponse, Versions(0, 1), ACCESS, handle)
