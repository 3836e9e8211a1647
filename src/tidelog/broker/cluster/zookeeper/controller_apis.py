"""LeaderAndIsr (4), StopReplica (5) and UpdateMetadata (6), served by members of ZooKeeper clusters only.

In such clusters Kafka's brokers also offer the controller's APIs (ControlledShutdown, AlterPartition, Envelope,
AllocateProducerIds). This broker never is the controller and answers NOT_CONTROLLER.

The controller waits for each response before it sends the next request. Requests from several connections are handled one at a
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidelog.broker.cluster.zookeeper.zookeeper_plane import ZookeeperPlane
from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.broker.requests.slices import Until, Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.errors import BrokerUnreachableError
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message, Versions
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger("tidelog.broker")


def _handler(name: str) -> Callable[[Node, Any, Request], Work]:
    def handle(node: Node, message: Message, request: Request) -> Work:
        plane = node.plane
        assert isinstance(plane, ZookeeperPlane)
        doing = getattr(plane.requests, name)(message, request.api_version)

        def begin(done: Callable[[object], None]) -> None:
            plane.tasks.begin(doing, f"tidelog-{name}").add_done_callback(done)

        # The work holds the message until it is done; another thread frees a message with many elements.
        task = yield Until(begin)
        try:
            return Wide(task.result())
        except asyncio.CancelledError:
            return Outcome.CLOSE  # The broker is shutting down.
        except BrokerUnreachableError as error:  # The controller sends the request again.
            plane.requests.retries.failed("cannot answer the controller's %s: %s", message.API_NAME, error)
            return Outcome.CLOSE
        except Exception:
            logger.exception("%s version %d failed", message.API_NAME, request.api_version)
            return Outcome.CLOSE

    return handle


def _refused(message: Message, code: ErrorCode) -> Message:
    response: Any = RESPONSES[message.API_KEY]
    refusal: Message = response(error_code=code)
    return refusal


def _not_controller(node: Node, message: Message, request: Request) -> Work:
    yield from discarded(message)
    return _refused(message, ErrorCode.NOT_CONTROLLER)


ACCESS = whole(cluster(Operation.CLUSTER_ACTION), refused=_refused)

CONTROLLER_APIS = (
    Api(LeaderAndIsrRequest, LeaderAndIsrResponse, Versions(0, 7), ACCESS, _handler("leader_and_isr")),
    Api(StopReplicaRequest, StopReplicaResponse, Versions(0, 4), ACCESS, _handler("stop_replica")),
    Api(UpdateMetadataRequest, UpdateMetadataResponse, Versions(0, 8), ACCESS, _handler("update_metadata")),
    Api(ControlledShutdownRequest, ControlledShutdownResponse, Versions(0, 3), ACCESS, _not_controller),
    Api(AlterPartitionRequest, AlterPartitionResponse, Versions(0, 3), ACCESS, _not_controller),
    Api(EnvelopeRequest, EnvelopeResponse, Versions(0, 0), ACCESS, _not_controller),
    Api(AllocateProducerIdsRequest, AllocateProducerIdsResponse, Versions(0, 0), ACCESS, _not_controller),
)
