"""ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664).

| version | what it changed |
|---|---|
| 1 | duration_filter: only transactions that have been open for longer, in milliseconds (KIP-994) |
| 2 | transactional_id_pattern: only ids that match the pattern (KIP-1152) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, api="ListTransactions", key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api="ListTransactions", key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
