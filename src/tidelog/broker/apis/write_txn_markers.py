"""WriteTxnMarkers (27): writes a transaction's markers to logs (KIP-98). The response is sent once the markers are committed.

A coordinator sends this request to other brokers; it writes to the logs of its own broker directly. An administrator may also
send it: ``kafka-transactions abort`` ends a hanging transaction that no coordinator knows (KIP-664).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from tidelog.broker.handling.access import cluster, unless_cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Until, Work, elements, grouped, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def _refused(message: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name, [WritableTxnMarkerPartitionResult(one, code) for one in topic.partition_indexes]
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


ACCESS = unless_cluster(
    Operation.ALTER,
    whole(cluster(Operation.CLUSTER_ACTION), refused=_refused),
)


def handle(node: Node, message: WriteTxnMarkersRequest, request: Request) -> Work:
    """Write the markers, and return a result for each partition once its marker is committed."""
    # Results by producer, then by topic: a producer that the request names twice gets one result.
    codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in message.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        control_type = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        producer = Producer(marker.producer_id, marker.producer_epoch)
        yield None
        for count, (topic, partition) in enumerate(elements(marker.topics, "partition_indexes")):
            key = TopicPartition(topic.name, partition)
            of_producer[key] = node.markers.write(
                key, producer, control_type, marker.coordinator_epoch, marker.transaction_version
            )
            if count % 8 == 7:
                yield None
    yield from _committed(node, codes)
    results = []
    for producer_id, of_producer in codes.items():
        results.append((yield from _result(producer_id, of_producer)))
        yield None
    yield from discarded(None, codes, *codes.values())
    return WriteTxnMarkersResponse(results)


def _committed(node: Node, codes: dict[int, dict[TopicPartition, ErrorCode]]) -> Generator[Elsewhere | Until | None, Any, None]:
    """Wait until the markers are committed. If a marker cannot be committed, store the error in its result in `codes`."""
    every = yield from slowly((each for of_producer in codes.values() for each in of_producer.items()), 256)
    left: set[TopicPartition] = set()
    refused: dict[TopicPartition, ErrorCode] = {}
    waiting: list[Callable[[object], None]] = []

    def done(key: TopicPartition, code: ErrorCode) -> None:
        left.discard(key)
        if code:
            refused[key] = code
        if waiting and not left:
            waiting.pop()(None)

    asked: set[TopicPartition] = set()
    for count, (key, code) in enumerate(every):
        if code is ErrorCode.NONE and key not in asked:
            asked.add(key)
            left.add(key)
            node.markers.when_written(key, partial(done, key))
        if count % 64 == 63:
            yield None
    if left:
        yield Until(waiting.append)
    for of_producer in codes.values() if refused else ():
        for count, (key, code) in enumerate(of_producer.items()):
            if code is ErrorCode.NONE:
                of_producer[key] = refused.get(key, code)
            if count % 256 == 255:
                yield None
    yield from discarded(None, every, asked)


def _result(producer_id: int, codes: dict[TopicPartition, ErrorCode]) -> Generator[None, None, WritableTxnMarkerResult]:
    results = ((key.topic, WritableTxnMarkerPartitionResult(key.partition, code)) for key, code in codes.items())
    by_topic = yield from grouped(results)
    return WritableTxnMarkerResult(producer_id, [WritableTxnMarkerTopicResult(*one) for one in by_topic.items()])


API = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, Versions(0, 2), ACCESS, handle)
