"""Fetch (1), of the metadata log only, by brokers that follow it (KIP-595).

A request with an older epoch than the leader's gets FENCED_LEADER_EPOCH, with a newer one UNKNOWN_LEADER_EPOCH. Both responses
name the leader and its epoch. A fetch at the end of the log waits until the log grows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.metadata_reads import MetadataRead
from tidelog.broker.controller.registrations import of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Until, Work
from tidelog.model import METADATA_TOPIC
from tidelog.reader.metadata_log import METADATA_TOPIC_ID
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)

SERVED = Versions(12, 17)
"""The versions served here: from the first whose response names the leader's epoch to the last of Kafka 3.9."""


def handle(node: Node, message: FetchRequest, request: Request) -> Work:
    """Return batches of the metadata log, or LATER if the fetch must wait for new ones."""
    controller = cast("ControllerNode", node)
    if message.cluster_id not in (None, node.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1 or not _is_metadata(message):
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    (wanted,) = message.topics[0].partitions
    store, epoch = node.manager.metadata, node.manager.metadata.epoch
    leader = LeaderIdAndEpoch(node.node_id, epoch)
    answer = PartitionData(0, high_watermark=store.end_offset, log_start_offset=0, current_leader=leader)
    answer.aborted_transactions = None
    if wanted.current_leader_epoch != epoch:
        is_older = wanted.current_leader_epoch < epoch
        answer.error_code = ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return _response(node, request, answer)
    broker_id = message.replica_id if request.api_version < 15 else message.replica_state.replica_id
    controller.observers.fetched(
        broker_id, wanted.replica_directory_id, wanted.fetch_offset, store.end_offset, controller.clock.now_ms()
    )
    if wanted.fetch_offset == store.end_offset and message.max_wait_ms > 0:
        yield Until(partial(_grown, controller, request, message.max_wait_ms))
    read: MetadataRead = yield Elsewhere(partial(controller.reads.read, wanted.fetch_offset, message.max_bytes))
    answer.high_watermark = read.end_offset
    if read.snapshot is not None:
        answer.snapshot_id = SnapshotId(read.snapshot.end_offset, read.snapshot.epoch)
    elif read.is_beyond:
        answer.diverging_epoch = EpochEndOffset(epoch, read.end_offset)
    answer.records = read.records
    return _response(node, request, answer)


def _is_metadata(message: FetchRequest) -> bool:
    topic = message.topics[0]
    return topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID


def _grown(controller: ControllerNode, request: Request, wait_ms: int, done: Callable[[object], None]) -> None:
    stop = controller.reads.wait(done)
    controller.timers.call_later(wait_ms, stop)
    request.when_gone(stop)


def _response(node: Node, request: Request, answer: PartitionData) -> FetchResponse:
    host, port = request.listener.advertised_host, request.listener.advertised_port
    return FetchResponse(
        responses=[FetchableTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [answer])],
        node_endpoints=[NodeEndpoint(node.node_id, host, port)],
    )


API = Api(FetchRequest, FetchResponse, SERVED, of_brokers(FetchResponse), handle)
