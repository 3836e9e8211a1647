"""AddPartitionsToTxn (24): adds the partitions that a transaction is about to write to (KIP-98).

Either all partitions of a transaction are added, or none: if one is unknown or forbidden, the others get
OPERATION_NOT_ATTEMPTED. Clients use versions up to 3, and may not add internal topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from types import MappingProxyType

from tidelog.broker.coordinators.groups.offset_commits import unknown_partitions
from tidelog.broker.coordinators.transactions.transaction import EPOCH_EACH
from tidelog.broker.handling.access import Access, Asker
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_transactions
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Work, counted, elements, grouped, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import INTERNAL_TOPICS, TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_FIRST_TOLD_OF_FENCING = 2
_FIRST_BATCHED = 4


def _gate(asker: Asker, message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    """Check that the client may write to the transactional id or, from version 4 on, that another broker sends the request.
    Return the error response, or None if the request is authorized. `handle` checks the topics: if one topic is denied, the
    response must have an error for every partition of the transaction.
    """
    if asker.request.api_version >= _FIRST_BATCHED:
        if asker.may_cluster(Operation.CLUSTER_ACTION):
            return None
        return AddPartitionsToTxnResponse(error_code=asker.code(ResourceType.CLUSTER))
    kind = ResourceType.TRANSACTIONAL_ID
    if asker.may(Operation.WRITE, kind, message.v3_and_below_transactional_id):
        return None
    code = asker.code(kind)
    topics = [
        AddPartitionsToTxnTopicResult(one.name, [AddPartitionsToTxnPartitionResult(index, code) for index in one.partitions])
        for one in message.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


ACCESS = Access(
    "WRITE on the TRANSACTIONAL_ID and each TOPIC; from another broker CLUSTER_ACTION on CLUSTER",
    _gate,
)


def handle(node: Node, message: AddPartitionsToTxnRequest, request: Request) -> Work:
    version = request.api_version
    if version < _FIRST_BATCHED:
        keys = yield from _keys(message.v3_and_below_topics)
        denied = _denied(node, request, message.v3_and_below_topics)
        forbidden = {key: ErrorCode.TOPIC_AUTHORIZATION_FAILED for key in keys if key.topic in denied}
        codes = yield from _unknown(node, keys, forbidden)
        if not codes:
            code = node.transactions.add_partitions(
                message.v3_and_below_transactional_id, message.v3_and_below_producer_id, message.v3_and_below_producer_epoch, keys
            )
            if code is ErrorCode.PRODUCER_FENCED and version < _FIRST_TOLD_OF_FENCING:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            codes = dict.fromkeys(keys, code)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from _results(codes)))
    results = []
    for one in message.transactions:
        yield None
        keys = yield from _keys(one.topics)
        codes = yield from _unknown(node, keys)
        producer = one.transactional_id, one.producer_id, one.producer_epoch
        if not codes and one.verify_only:
            verified = yield from slowly((node.transactions.verification(*producer, key) for key in keys), 64)
            codes = dict(zip(keys, verified, strict=True))
        elif not codes:
            codes = dict.fromkeys(keys, node.transactions.add_partitions(*producer, keys, EPOCH_EACH))
        results.append(AddPartitionsToTxnResult(one.transactional_id, (yield from _results(codes))))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _denied(node: Node, request: Request, topics: Iterable[AddPartitionsToTxnTopic]) -> Collection[str]:
    """Return the topics to which the client may not write."""
    permissions = node.permissions
    if permissions is None:
        return INTERNAL_TOPICS
    times: Counter[str] = Counter()
    for one in topics:
        times[one.name] += len(one.partitions)
    return {
        name
        for name, count in times.items()
        if name in INTERNAL_TOPICS or not permissions.may(request, Operation.WRITE, ResourceType.TOPIC, name, count=count)
    }


def _keys(topics: Iterable[AddPartitionsToTxnTopic]) -> Generator[None, None, list[TopicPartition]]:
    """Return the request's partitions in order of first appearance, without duplicates."""
    return list((yield from counted(TopicPartition(topic.name, partition) for topic, partition in elements(topics))))


def _unknown(
    node: Node, keys: Collection[TopicPartition], forbidden: Mapping[TopicPartition, ErrorCode] = MappingProxyType({})
) -> Generator[None, None, dict[TopicPartition, ErrorCode]]:
    """Return an error code for every partition if any partition is unknown or forbidden, otherwise an empty dict."""
    wrong = {**(yield from unknown_partitions(node.topics, keys)), **forbidden}
    return dict.fromkeys(keys, ErrorCode.OPERATION_NOT_ATTEMPTED) | wrong if wrong else {}


def _results(codes: dict[TopicPartition, ErrorCode]) -> Generator[Elsewhere | None, None, list[AddPartitionsToTxnTopicResult]]:
    results = ((key.topic, AddPartitionsToTxnPartitionResult(key.partition, code)) for key, code in codes.items())
    by_topic = yield from grouped(results)
    yield from discarded(None, codes)
    return (yield from slowly((AddPartitionsToTxnTopicResult(*one) for one in by_topic.items()), 256))


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, Versions(0, 5), ACCESS, by_transactions(handle))
