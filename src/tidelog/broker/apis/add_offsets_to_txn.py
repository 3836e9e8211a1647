"""AddOffsetsToTxn (25): adds a group to a transaction that will commit the group's offsets (KIP-98).

The coordinator adds the group's partition of ``__consumer_offsets`` to the transaction. The offsets themselves arrive with
TxnOffsetCommit.
"""

from __future__ import annotations

from tidelog.broker.handling.access import Right, at_top, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_transactions
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

ACCESS = whole(
    Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    Right(Operation.READ, ResourceType.GROUP, "group_id"),
    refused=at_top(AddOffsetsToTxnResponse),
)

_FIRST_TOLD_OF_FENCING = 2


def handle(node: Node, message: AddOffsetsToTxnRequest, request: Request) -> AddOffsetsToTxnResponse:
    groups = node.groups.log
    key = groups.key(groups.partition_of(message.group_id))
    code = node.transactions.add_partitions(message.transactional_id, message.producer_id, message.producer_epoch, [key])
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < _FIRST_TOLD_OF_FENCING:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


API = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, Versions(0, 4), ACCESS, by_transactions(handle))
