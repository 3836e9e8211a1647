"""UpdateFeatures (key 57): changes the finalized levels of features (KIP-584, KIP-778).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | upgrade_type in place of allow_downgrade: 1 only upgrades, 2 allows lossless downgrades, 3 all downgrades; validate_only |
| 2 | one error for all features; before, one error for each (KIP-1022) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api="UpdateFeatures", key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Message, api="UpdateFeatures", key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")
