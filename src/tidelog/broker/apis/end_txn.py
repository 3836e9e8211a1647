"""EndTxn (26): commits or aborts a transaction (KIP-98).

When the response is sent, the outcome has been decided and stored. The markers may be written later. A producer that begins its
next transaction before the markers are written gets CONCURRENT_TRANSACTIONS. On a standalone broker the markers are usually
written before the response, unless the transaction has many partitions.
"""

from __future__ import annotations

from tidelog.broker.coordinators.transactions.transaction import ProducerIdAndEpoch
from tidelog.broker.coordinators.transactions.transactions import NOBODY
from tidelog.broker.handling.access import Right, at_top, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_transactions
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

ACCESS = whole(Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"), refused=at_top(EndTxnResponse))

_FIRST_TOLD_OF_FENCING = 2
_FIRST_IN_NEXT_EPOCH = 5


def handle(node: Node, message: EndTxnRequest, request: Request) -> EndTxnResponse:
    if request.api_version >= _FIRST_IN_NEXT_EPOCH:
        code, producer = node.transactions.end_in_next_epoch(
            message.transactional_id,
            ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
            is_commit=message.committed,
        )
        return EndTxnResponse(0, code, *(producer if code is ErrorCode.NONE else NOBODY))
    code = node.transactions.end(
        message.transactional_id, message.producer_id, message.producer_epoch, is_commit=message.committed
    )
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < _FIRST_TOLD_OF_FENCING:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code)


API = Api(EndTxnRequest, EndTxnResponse, Versions(0, 5), ACCESS, by_transactions(handle))
