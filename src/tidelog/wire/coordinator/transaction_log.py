"""A transactional id and its transaction, in `__transaction_state` (KIP-98).

Version 1 of the value is flexible; its tagged fields are for producers with a new epoch per transaction (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
