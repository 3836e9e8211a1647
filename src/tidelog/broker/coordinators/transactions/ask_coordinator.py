"""Verifies transactional records before they are appended: asks the coordinator, on this or another broker, whether the
transaction has the records' partitions.

Until the coordinator answers, each partition's log has a guard (`verification_state_entry`). A marker that is written in the
meantime removes the guard.

Producers of `transaction.version` 2 (Produce 12, TxnOffsetCommit 5) do not announce their partitions. For them, the coordinator
is asked to add the partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from tidelog.broker.coordinators.transactions.transactions import Transactions
from tidelog.broker.partitions.header_check import HeaderCheck
from tidelog.broker.partitions.leadership import Leadership
from tidelog.broker.requests.slices import Until
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.verification_state_entry import VerificationStateEntry
from tidelog.wire.error_codes import ErrorCode


class Asked(NamedTuple):
    """The coordinator's result for a partition, and the guard that was set before asking."""

    code: ErrorCode
    guard: VerificationStateEntry


class ToAsk(NamedTuple):
    """A producer's partitions in which its transaction is not yet open, with their guards."""

    producer: Producer
    guards: dict[TopicPartition, VerificationStateEntry]


def to_ask(
    logs: Mapping[TopicPartition, PartitionLog],
    leadership: Leadership,
    looks: Mapping[tuple[str, int], HeaderCheck],
    *,
    is_adding: bool,
) -> ToAsk | None:
    """Return the partitions that the coordinator must verify, with guards set in their logs; None if there are no such
    partitions.
    """
    guards: dict[TopicPartition, VerificationStateEntry] = {}
    producer: Producer | None = None
    for key, look in looks.items():
        log = logs.get(key)  # type: ignore[call-overload]
        if log is None or look.producer is None or look.error_code or leadership.refusal(log.topic_partition):
            continue
        state, producer = log.producer_state, look.producer
        entry = state.last_entry(producer.producer_id)
        if entry is None or not entry.has_open_transaction or producer.producer_epoch > entry.producer_epoch:
            guards[log.topic_partition] = state.maybe_create_verification(
                producer.producer_id, producer.base_sequence, producer.producer_epoch, has_epoch_each=is_adding
            )
    return ToAsk(producer, guards) if producer is not None and guards else None


def ask_coordinator(
    transactions: Transactions, transactional_id: str, asked: ToAsk, *, is_adding: bool
) -> Generator[Until, Any, dict[tuple[str, int], Asked]]:
    """Ask the coordinator, on this or another broker, and return its result for each partition. Runs in slices."""
    producer, guards = asked
    named = transactional_id, producer.producer_id, producer.producer_epoch
    codes = yield from transactions.verified(*named, guards, is_adding=is_adding)
    return {key: Asked(codes[key], guard) for key, guard in guards.items()}
