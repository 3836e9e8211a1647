"""ListClientMetricsResources (74): lists client metrics subscriptions (KIP-1000). This broker has none."""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)

ACCESS = whole(cluster(Operation.DESCRIBE_CONFIGS), refused=at_top(ListClientMetricsResourcesResponse))


def handle(node: Node, message: ListClientMetricsResourcesRequest, request: Request) -> ListClientMetricsResourcesResponse:
    return ListClientMetricsResourcesResponse()


API = Api(ListClientMetricsResourcesRequest, ListClientMetricsResourcesResponse, Versions(0, 0), ACCESS, handle)
