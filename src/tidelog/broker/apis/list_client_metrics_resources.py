"""ListClientMetricsResources (74): lists client metrics subscriptions (KIP-1000). This broker has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 0)
"""The versions served here. `tidelog.wire.messages.list_client_metrics_resources` lists the changes of each version."""

ACCESS = whole(cluster(Operation.DESCRIBE_CONFIGS), refused=at_top(ListClientMetricsResourcesResponse))


def handle(node: Node, message: ListClientMetricsResourcesRequest, request: Request) -> ListClientMetricsResourcesResponse:
    return ListClientMetricsResourcesResponse()


API = Api(ListClientMetricsResourcesRequest, ListClientMetricsResourcesResponse, SERVED, ACCESS, handle)
