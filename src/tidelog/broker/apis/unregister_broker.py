"""UnregisterBroker (64): removes a broker's registration from the cluster (KIP-631). A standalone broker refuses the request,
because it is the only broker.
"""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

ACCESS = whole(cluster(Operation.ALTER), refused=at_top(UnregisterBrokerResponse))


def handle(node: Node, message: UnregisterBrokerRequest, request: Request) -> UnregisterBrokerResponse:
    if message.broker_id != node.node_id:
        return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST, error_message="the only broker of a cluster cannot be unregistered"
    )


API = Api(UnregisterBrokerRequest, UnregisterBrokerResponse, Versions(0, 0), ACCESS, handle)
