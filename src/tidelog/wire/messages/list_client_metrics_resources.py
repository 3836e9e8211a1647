"""ListClientMetricsResources (key 74): names of client metrics subscriptions (KIP-1000).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, string


class ListClientMetricsResourcesRequest(Message, api="ListClientMetricsResources", key=74, versions="0", flexible="0+"):
    pass


class ClientMetricsResource(Struct):
    name: str = string()


class ListClientMetricsResourcesResponse(Message, api="ListClientMetricsResources", key=74, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_metrics_resources: list[ClientMetricsResource] = array(ClientMetricsResource)
