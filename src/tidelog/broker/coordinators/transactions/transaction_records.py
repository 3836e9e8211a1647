"""Converts transactional ids to and from records of ``__transaction_state``, in Kafka's format.

| | |
|---|---|
| key v0 | the transactional id |
| value v0 | producer id and epoch, timeout, state, partitions (null while there is no transaction), two times |
| value v1 | for producers with an epoch for each transaction (KIP-890): also `transaction.version`, previous and next id |
| no value | the id has expired |

A key of an unknown version is skipped, as in Kafka. A value that cannot be read makes the partition unreadable, because a wrong
guess about a transaction is worse than no coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tidelog.broker.coordinators.transactions.transaction import (
    ENDED,
    EPOCH_EACH,
    LAST_GIVEN_EPOCH,
    TRANSITIONS,
    Transaction,
    TransactionState,
)
from tidelog.errors import ProtocolError
from tidelog.model import TopicPartition, partitions_by_topic
from tidelog.records.batch import NO_PRODUCER_EPOCH
from tidelog.records.state_batches import Entry, StateBatch
from tidelog.wire.coordinator.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tidelog.wire.coordinator.versioned import decode_versioned, encode_versioned, version_of

logger = logging.getLogger("tidelog.broker")

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
VALUE_VERSION_EPOCH_EACH: Final = 1


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id), KEY_VERSION)


def transaction_entry(transaction: Transaction) -> Entry:
    """Return the record of a transaction, as key and value."""
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        by_topic = partitions_by_topic(sorted(transaction.partitions))
        partitions = [PartitionsSchema(topic, indexes) for topic, indexes in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        previous_producer_id=transaction.last_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_version,
    )
    version = VALUE_VERSION_EPOCH_EACH if transaction.client_version >= EPOCH_EACH else VALUE_VERSION
    return transaction_key(transaction.transactional_id), encode_versioned(value, version)


def read_transaction(transactional_id: str, value: bytes) -> Transaction:
    """Return the transaction in a record's value. Raises ProtocolError."""
    read = decode_versioned(TransactionLogValue, value)
    state = read.transaction_status
    if state not in TRANSITIONS[None]:
        raise ProtocolError(f"transactional id {transactional_id!r} has an invalid state", found=state, expected="0 to 5")
    schemas = read.transaction_partitions or ()
    has_epoch_each = read.client_transaction_version >= EPOCH_EACH and state in ENDED
    last_epoch = NO_PRODUCER_EPOCH
    if has_epoch_each:  # If the transaction has a new producer id, the previous epoch is the last epoch of the old id.
        last_epoch = read.producer_epoch - 1 if read.producer_epoch > 0 else LAST_GIVEN_EPOCH
    return Transaction(
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        TransactionState(state),
        frozenset(TopicPartition(one.topic, partition) for one in schemas for partition in one.partition_ids),
        read.transaction_start_timestamp_ms,
        read.transaction_last_update_timestamp_ms,
        read.previous_producer_id,
        last_epoch,
        read.client_transaction_version,
        read.next_producer_id,
    )


def read_transactions(batches: Iterator[StateBatch]) -> dict[str, Transaction]:
    """Return the transactions in a partition of the log, by transactional id. The last record of an id counts. Raises
    ProtocolError.
    """
    found: dict[str, bytes] = {}
    for batch in batches:
        for record in batch.records:
            if record.key is None or version_of(record.key) != KEY_VERSION:
                logger.warning("skipping the record at offset %d: its key is not a transactional id", record.offset)
                continue
            transactional_id = decode_versioned(TransactionLogKey, record.key).transactional_id
            found.pop(transactional_id, None)
            if record.value is not None:
                found[transactional_id] = record.value
    return {transactional_id: read_transaction(transactional_id, value) for transactional_id, value in found.items()}
