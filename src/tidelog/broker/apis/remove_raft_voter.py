"""RemoveRaftVoter (81): removes a voter from the controllers' quorum (KIP-853).

A standalone broker refuses the request, as Kafka does if ``kraft.version`` is 0 and the voters are therefore fixed.
"""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import shortened
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

ACCESS = whole(cluster(Operation.ALTER), refused=at_top(RemoveRaftVoterResponse))


def handle(node: Node, message: RemoveRaftVoterRequest, request: Request) -> RemoveRaftVoterResponse:
    cluster_id = node.cluster_id
    if message.cluster_id not in (None, cluster_id):
        reason = f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        return RemoveRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=shortened(reason))
    reason = "Cluster doesn't support removing voter because the kraft.version feature is 0"
    return RemoveRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=reason)


API = Api(RemoveRaftVoterRequest, RemoveRaftVoterResponse, Versions(0, 0), ACCESS, handle)
