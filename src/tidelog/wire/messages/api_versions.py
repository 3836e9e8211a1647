"""ApiVersions (key 18): the APIs that a broker serves, and their versions. Most clients send this request first.

If the broker does not know the request's version, it answers in v0, with UNSUPPORTED_VERSION and the versions of this API
(KIP-511). The response's header never has tagged fields, because the client may not know the version yet.

| version | what it changed |
|---|---|
| 1 | throttle_time_ms |
| 2 | throttled clients get the response at once |
| 3 | flexible; the client's software (KIP-511); features (KIP-584) |
| 4 | a feature's min_version may be 0 (KAFKA-17011) |
| 5 | the cluster_id and node_id that the client expects (KIP-1242) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api="ApiVersions", key=18, versions="0-5", flexible="3+"):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="5+", default=None)
    node_id: int = int32("5+", default=-1)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api="ApiVersions", key=18, versions="0-5", flexible="3+"):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
