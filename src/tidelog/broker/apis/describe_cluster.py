"""DescribeCluster (60): returns the cluster's id, brokers and controller (KIP-700).

Endpoint type 1 asks for brokers. Type 2 asks for controllers: only they answer such requests, and a broker returns
MISMATCHED_ENDPOINT_TYPE, as in Kafka. Fenced brokers are included on request.
"""

from __future__ import annotations

from tidelog.broker.apis.metadata import NOT_ASKED_FOR, cluster_operations
from tidelog.broker.handling.access import Access
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

ACCESS = Access("DESCRIBE on CLUSTER for its authorized operations")

BROKERS = 1
CONTROLLERS = 2


def handle(node: Node, message: DescribeClusterRequest, request: Request) -> DescribeClusterResponse:
    if message.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="this endpoint belongs to a broker, not to a controller"
        )
    if message.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"unknown endpoint type {message.endpoint_type}"
        )
    brokers = node.brokers.registered if message.include_fenced_brokers else node.brokers.alive
    return DescribeClusterResponse(
        cluster_id=node.cluster_id or "",
        controller_id=node.brokers.controller_id(request.listener),
        brokers=[
            DescribeClusterBroker(broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack, is_fenced=one.is_fenced)
            for one in brokers(request.listener)
        ],
        cluster_authorized_operations=cluster_operations(node, request)
        if message.include_cluster_authorized_operations
        else NOT_ASKED_FOR,
    )


API = Api(DescribeClusterRequest, DescribeClusterResponse, Versions(0, 2), ACCESS, handle)
