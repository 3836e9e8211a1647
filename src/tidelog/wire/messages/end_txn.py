"""EndTxn (key 26): commits or aborts a transaction (KIP-98).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | PRODUCER_FENCED (KIP-588); before, INVALID_PRODUCER_EPOCH |
| 3 | flexible |
| 4 | TRANSACTION_ABORTABLE (KIP-890) |
| 5 | the producer id and epoch for the next transaction, because each transaction has its own epoch (KIP-890) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api="EndTxn", key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api="EndTxn", key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
