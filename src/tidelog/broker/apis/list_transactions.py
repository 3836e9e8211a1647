"""ListTransactions (66): the transactional ids of this broker, which are all (KIP-664). Versions 0 and 1.

| version | change |
|---|---|
| 1 | only what began so many milliseconds ago, or longer (KIP-994) |

Ids that were never in a transaction have begun at -1, the epoch's eve: every duration takes them, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.transactions.transaction import STATES_BY_TEXT
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from tidelog.broker.node import Node


def handle(node: Node, message: ListTransactionsRequest, request: Request) -> ListTransactionsResponse:
    """List what the filters let through."""
    if node.transactions.log.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    texts = set(message.state_filters)
    producer_ids = set(message.producer_id_filters)
    duration_ms = message.duration_filter
    now_ms = node.clock.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=sorted(texts - STATES_BY_TEXT.keys()),
        transaction_states=[
            TransactionState(one.transactional_id, one.producer_id, one.state.text)
            for one in node.transactions.all()
            if not producer_ids or one.producer_id in producer_ids
            if not texts or one.state.text in texts
            if duration_ms < 0 or now_ms - one.started_ms > duration_ms
        ],
    )


API = Api(ListTransactionsRequest, ListTransactionsResponse, 0, 1, handle)
