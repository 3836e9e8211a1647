"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group (KIP-98).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | PRODUCER_FENCED (KIP-588); before, INVALID_PRODUCER_EPOCH |
| 3 | flexible |
| 4 | TRANSACTION_ABORTABLE (KIP-890) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api="AddOffsetsToTxn", key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api="AddOffsetsToTxn", key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
