"""ListTransactions (66): lists the transactional ids that this broker coordinates (KIP-664).

An id that was never in a transaction has start time -1, one millisecond before the epoch, so it matches every duration filter, as
in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from tidelog.broker.coordinators.transactions.transaction import STATES_BY_TEXT
from tidelog.broker.handling.access import Access, may
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Work, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

ACCESS = Access("DESCRIBE on each TRANSACTIONAL_ID: ids without it are left out")


def handle(node: Node, message: ListTransactionsRequest, request: Request) -> Work:
    if node.transactions.log.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    texts = set((yield from slowly(message.state_filters, 256)))
    producer_ids = set((yield from slowly(message.producer_id_filters, 256)))
    duration_ms = message.duration_filter
    now_ms = node.clock.now_ms()
    states: list[TransactionState] = []
    for count, one in enumerate(list(node.transactions.all())):
        if (
            (not producer_ids or one.producer_id in producer_ids)
            and (not texts or one.state.text in texts)
            and (duration_ms < 0 or now_ms - one.started_ms > duration_ms)
            and may(node, request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ):
            states.append(TransactionState(one.transactional_id, one.producer_id, one.state.text))
        if count % 64 == 63:
            yield None
    unknown = (yield Elsewhere(partial(_unknown, texts))) if len(texts) > AT_ONCE else _unknown(texts)
    yield from discarded(None, texts, producer_ids)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)


def _unknown(texts: Collection[str]) -> list[str]:
    return sorted(text for text in texts if text not in STATES_BY_TEXT)


API = Api(ListTransactionsRequest, ListTransactionsResponse, Versions(0, 1), ACCESS, handle)
