"""DescribeCluster (key 60): the cluster's id, its controller and its brokers (KIP-700).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | endpoint_type: brokers or controllers (KIP-919) |
| 2 | fenced brokers (KIP-1073) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, api="DescribeCluster", key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, api="DescribeCluster", key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(1 << 31))
