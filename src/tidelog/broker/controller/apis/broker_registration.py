"""BrokerRegistration (62): registers a broker, and gives it an epoch (KIP-631)."""

from __future__ import annotations

from typing import cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.registrations import BROKERS, of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.topics.topic_changes import Job
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(node: Node, message: BrokerRegistrationRequest, request: Request) -> Work:
    """Return the broker's epoch once the registration is on disk."""
    controller = cast("ControllerNode", node)
    if message.cluster_id != node.cluster_id:
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    (response,) = yield from node.topic_changes.side_by_side([Job(BROKERS, controller.registrations.registration(message))])
    return cast("BrokerRegistrationResponse", response)


API = Api(BrokerRegistrationRequest, BrokerRegistrationResponse, Versions(0, 4), of_brokers(BrokerRegistrationResponse), handle)
