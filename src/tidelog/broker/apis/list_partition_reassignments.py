"""ListPartitionReassignments (46): lists ongoing reassignments (KIP-455). A standalone broker never has any."""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

ACCESS = whole(cluster(Operation.DESCRIBE), refused=at_top(ListPartitionReassignmentsResponse))


def handle(node: Node, message: ListPartitionReassignmentsRequest, request: Request) -> Work:
    yield from discarded(message)
    return ListPartitionReassignmentsResponse(error_message=None)


API = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, Versions(0, 0), ACCESS, handle)
