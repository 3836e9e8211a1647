"""DescribeTransactions (65): returns the state of transactions, by transactional id (KIP-664)."""

from __future__ import annotations

from tidelog.broker.handling.access import each, may
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.model import partitions_by_topic
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

ACCESS = each(
    Operation.DESCRIBE,
    ResourceType.TRANSACTIONAL_ID,
    of="transactional_ids",
    refused=lambda name, code: TransactionState(code, name),
    response=DescribeTransactionsResponse,
    into="transaction_states",
)
"""A transaction's topics are shown only if the client may describe them."""


def handle(node: Node, message: DescribeTransactionsRequest, request: Request) -> Work:
    """Describe the transactional ids in the order of the request, repeated ones too, until the response is full."""
    room = AnswerRoom()

    def described(transactional_id: str) -> TransactionState:
        if room.is_used_up:
            return TransactionState(no_room().code, transactional_id)
        state = _describe(node, transactional_id, request)
        for one in state.topics:
            room.use(len(one.topic) + 4 * len(one.partitions))
        return state

    states = yield from slowly(map(described, message.transactional_ids), 4)
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(node: Node, transactional_id: str, request: Request) -> TransactionState:
    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST)
    code = node.transactions.code_for(transactional_id)
    transaction = node.transactions.get(transactional_id)
    if code is ErrorCode.NONE and transaction is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if code is not ErrorCode.NONE or transaction is None:
        return TransactionState(code, transactional_id)
    by_topic = partitions_by_topic(sorted(transaction.partitions))
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        transaction.state.text,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        [TopicData(*one) for one in by_topic.items() if may(node, request, Operation.DESCRIBE, ResourceType.TOPIC, one[0])],
    )


API = Api(DescribeTransactionsRequest, DescribeTransactionsResponse, Versions(0, 0), ACCESS, handle)
