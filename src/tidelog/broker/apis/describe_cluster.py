"""DescribeCluster (60): the cluster's id, its brokers, its controller (KIP-700).

Endpoint type 1 asks for brokers, 2 for controllers, which Kafka answers elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.apis.metadata import ALL_CLUSTER_OPERATIONS, NOT_ASKED_FOR
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 1)
"""What each version changed: the table of `tidelog.wire.messages.describe_cluster`."""

BROKERS = 1
CONTROLLERS = 2


def handle(node: Node, message: DescribeClusterRequest, request: Request) -> DescribeClusterResponse:
    if message.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="this is a broker's endpoint")
    if message.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"there is no endpoint of type {message.endpoint_type}"
        )
    listener = request.listener
    return DescribeClusterResponse(
        cluster_id=node.cluster_id or "",
        controller_id=node.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id, host=listener.advertised_host, port=listener.advertised_port, rack=node.config.broker_rack
            )
        ],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED_FOR,
    )


API = Api(DescribeClusterRequest, DescribeClusterResponse, SERVED, handle)
