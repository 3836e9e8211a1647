"""ConsumerGroupHeartbeat (68): heartbeats of the new group protocol (KIP-848), which is off here, as in Kafka 3.9 by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.handling.access import within
from tidelog.broker.handling.api import Api
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 0)
"""The versions served here. `tidelog.wire.messages.consumer_group_heartbeat` lists the changes of each version."""

ACCESS = within("nothing: it is off for everybody")


def handle(node: Node, message: ConsumerGroupHeartbeatRequest, request: Request) -> Work:
    return _work(message)


def _work(message: ConsumerGroupHeartbeatRequest) -> Work:
    yield from discarded(message)
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


API = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, SERVED, ACCESS, handle)
