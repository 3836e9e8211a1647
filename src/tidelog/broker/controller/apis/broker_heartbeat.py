"""BrokerHeartbeat (63): keeps a broker registered; fences and unfences it (KIP-631)."""

from __future__ import annotations

from typing import cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.registrations import BROKERS, of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.topics.topic_changes import Job
from tidelog.wire.fields import Versions
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(node: Node, message: BrokerHeartbeatRequest, request: Request) -> Work:
    """Return the broker's state, once any change of that state is on disk."""
    controller = cast("ControllerNode", node)
    (response,) = yield from node.topic_changes.side_by_side([Job(BROKERS, controller.registrations.heartbeat(message))])
    return cast("BrokerHeartbeatResponse", response)


API = Api(BrokerHeartbeatRequest, BrokerHeartbeatResponse, Versions(0, 1), of_brokers(BrokerHeartbeatResponse), handle)
