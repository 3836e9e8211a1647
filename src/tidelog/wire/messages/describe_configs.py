"""DescribeConfigs (key 32): the configuration of topics and brokers, and where each value comes from (KIP-133).

| version | what it changed |
|---|---|
| 1 | the source of each value and its synonyms, in place of is_default (KIP-226) |
| 2 | throttled clients get the response at once |
| 3 | type and documentation (KIP-569) |
| 4 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


class DescribeConfigsRequest(Message, api="DescribeConfigs", key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api="DescribeConfigs", key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
