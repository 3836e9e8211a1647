"""ConsumerGroupHeartbeat (68): members of groups of the new protocol (KIP-848). It is off, as it is in Kafka 3.9 by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import within
from tidelog.broker.server.request import Request
from tidelog.broker.server.slices import Work
from tidelog.broker.server.wide_requests import discarded
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 0)
"""Changes by version: the table of `tidelog.wire.messages.consumer_group_heartbeat`."""

ACCESS = within("nothing: it is off for everybody")


def handle(node: Node, message: ConsumerGroupHeartbeatRequest, request: Request) -> Work:
    return _work(message)


def _work(message: ConsumerGroupHeartbeatRequest) -> Work:
    yield from discarded(message)
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


API = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, SERVED, ACCESS, handle)
