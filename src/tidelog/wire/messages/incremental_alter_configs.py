"""IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single properties (KIP-339).

| version | what it changed |
|---|---|
| 1 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int32, string
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api="IncrementalAlterConfigs", key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, api="IncrementalAlterConfigs", key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
