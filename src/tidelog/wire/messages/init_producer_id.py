"""InitProducerId (key 22): returns an id for an idempotent or transactional producer (KIP-98).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
| 3 | the producer's current id and epoch, to continue after an error (KIP-360) |
| 4 | PRODUCER_FENCED (KIP-588); before, INVALID_PRODUCER_EPOCH |
| 5 | TRANSACTION_ABORTABLE (KIP-890) |
| 6 | two-phase commit (KIP-939); not stable yet |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, api="InitProducerId", key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api="InitProducerId", key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
