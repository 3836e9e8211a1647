"""Appends of producers, batch by batch, straight into a `ProducerStateManager`."""

from __future__ import annotations

from pathlib import Path

from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.validation import AppendOrigin
from tidelog.storage.producers.producer_state_manager import ProducerStateManager

PARTITION = TopicPartition("test", 0)
DAY_MS = 86_400_000
MAX_TIMEOUT_MS = 300_000
NOW_MS = 1_700_000_000_000
PRODUCER = 1


def manager(directory: Path, clock: ManualClock, **options: int) -> ProducerStateManager:
    return ProducerStateManager(
        PARTITION,
        directory,
        clock,
        **{"producer_id_expiration_ms": DAY_MS, "max_transaction_timeout_ms": MAX_TIMEOUT_MS, **options},
    )


def batch(
    sequence: int,
    offset: int,
    *,
    records: int = 1,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    transactional: bool = False,
    control: bool = False,
) -> BatchHeader:
    """Return a v2 batch's header; nothing but its producer's fields, offsets and timestamp matters here."""
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    last_offset = offset + records - 1
    return BatchHeader(
        0, 100, offset, last_offset, 2, 0, attributes, timestamp, timestamp, 0, producer_id, epoch, sequence, records
    )


def append(state: ProducerStateManager, header: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    """Append a batch of data as the log does."""
    info = state.prepare_update(header.producer_id, origin)
    info.append(header)
    state.update(info)
    state.map_end_offset = header.next_offset


def end_txn(
    state: ProducerStateManager,
    kind: ControlType,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
) -> CompletedTxn | None:
    """Append a marker as the log does."""
    info = state.prepare_update(producer_id, AppendOrigin.COORDINATOR)
    completed = info.append_end_txn_marker(EndTxnMarker(kind, coordinator_epoch), epoch, offset, timestamp)
    state.update(info)
    if completed is not None:
        state.complete_txn(completed)
    state.map_end_offset = offset + 1
    return completed
