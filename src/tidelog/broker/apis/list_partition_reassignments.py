"""ListPartitionReassignments (46): ongoing moves of replicas (KIP-455). A standalone broker never has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import at_top, cluster, whole
from tidelog.broker.server.request import Request
from tidelog.broker.server.slices import Work
from tidelog.broker.server.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 0)
"""Changes by version: the table of `tidelog.wire.messages.list_partition_reassignments`."""

ACCESS = whole(cluster(Operation.DESCRIBE), refused=at_top(ListPartitionReassignmentsResponse))


def handle(node: Node, message: ListPartitionReassignmentsRequest, request: Request) -> Work:
    """Answer with an empty list: only partitions that are being moved would be listed."""
    return _work(message)


def _work(message: ListPartitionReassignmentsRequest) -> Work:
    yield from discarded(message)
    return ListPartitionReassignmentsResponse(error_message=None)


API = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, SERVED, ACCESS, handle)
