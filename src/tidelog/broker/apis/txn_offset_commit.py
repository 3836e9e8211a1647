"""TxnOffsetCommit (28): commits a group's offsets as part of a transaction (KIP-98).

COORDINATOR_LOAD_IN_PROGRESS is returned only from version 2 on, because older clients treat it as fatal.

The group must have been added to the transaction (AddOffsetsToTxn); from version 5 on this request adds it (KIP-890). Until the
transaction ends, OffsetFetch returns the previous offsets, or UNSTABLE_OFFSET_COMMIT. `coordinators.groups.offset_commits` checks
the member and its generation.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.coordinators.groups.offset_commits import (
    Committer,
    Transaction,
    by_topic,
    commit_in_transaction,
    unknown_partitions,
    without,
)
from tidelog.broker.handling.access import Right, each, first, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, elements
from tidelog.broker.requests.wide_requests import discarded
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def _refused(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        topic.name, topic.topic_id, [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
    )


_FIRST_TOLD_OF_LOADING: Final = 2
_FIRST_TOLD_TO_ABORT: Final = 4
_FIRST_ADDING: Final = 5


ACCESS = first(
    whole(
        Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
        Right(Operation.READ, ResourceType.GROUP, "group_id"),
        refused=lambda message, code: TxnOffsetCommitResponse(topics=[_refused(topic, code) for topic in message.topics]),
    ),
    each(
        Operation.READ,
        ResourceType.TOPIC,
        of="topics",
        name="name",
        refused=_refused,
        response=TxnOffsetCommitResponse,
        into="topics",
    ),
)


def handle(node: Node, message: TxnOffsetCommitRequest, request: Request) -> Work:
    now_ms, version = node.clock.now_ms(), request.api_version
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic, one in elements(message.topics):
        offsets[TopicPartition(topic.name, one.partition_index)] = CommittedOffset(
            one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", now_ms
        )
        if len(offsets) % 128 == 127:
            yield None
    codes = yield from unknown_partitions(node.topics, offsets)
    known = (yield from without(offsets, codes)) if codes else offsets
    if known:
        committer = Committer(message.group_id, message.generation_id, message.member_id, message.group_instance_id)
        transaction = Transaction(message.transactional_id, message.producer_id, message.producer_epoch)
        is_adding = version >= _FIRST_ADDING
        codes.update((yield from commit_in_transaction(node, committer, transaction, known, is_adding=is_adding)))

    def reported(partition: int, code: ErrorCode) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(partition, _reported(code, version))

    topics = yield from by_topic(codes, TxnOffsetCommitResponseTopic, reported)
    yield from discarded(None, offsets, codes)
    return TxnOffsetCommitResponse(topics=topics)


def _reported(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code, or an older code in its place if clients of that version do not know it."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_TOLD_OF_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_TOLD_TO_ABORT:
        return ErrorCode.INVALID_TXN_STATE
    return code


API = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse, Versions(0, 5), ACCESS, by_groups(handle))
