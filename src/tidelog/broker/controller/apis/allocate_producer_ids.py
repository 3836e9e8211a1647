"""AllocateProducerIds (67): gives a broker a block of producer ids that no other broker gets (KIP-730)."""

from __future__ import annotations

from typing import cast

from tidelog.broker.apis.init_producer_id import NO_TOPIC
from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.registrations import of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.topics.topic_changes import Job
from tidelog.wire.fields import Versions
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def handle(node: Node, message: AllocateProducerIdsRequest, request: Request) -> Work:
    """Return a block of ids once the allocation is on disk."""
    controller = cast("ControllerNode", node)
    code = controller.registrations.is_current(message.broker_id, message.broker_epoch)
    if code:
        return AllocateProducerIdsResponse(error_code=code)
    block = node.manager.producer_ids.block_for(message.broker_id, message.broker_epoch)
    (ids,) = yield from node.topic_changes.side_by_side([Job(NO_TOPIC, block)])
    return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))


API = Api(
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, Versions(0, 0), of_brokers(AllocateProducerIdsResponse), handle
)
