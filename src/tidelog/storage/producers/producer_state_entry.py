"""The state of one producer: its epoch, its last batches, its open transaction (spec §9; KIP-98).

The last five batches are kept, so that a producer with five requests in flight may resend any of them. A snapshot has only the
last batch. -1 stands for "none" everywhere, as in the snapshot.

An entry in the manager's map never changes: an append works on a copy, which then replaces the entry.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.formats.producer_snapshot import ProducerEntry, pack_entry
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader, decrement_sequence

BATCHES_KEPT = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset minus first offset."""
    timestamp: int
    """The batch's max timestamp, ms."""

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_FIELDS = ("producer_id", "producer_epoch", "coordinator_epoch", "last_timestamp", "current_txn_first_offset", "batches")


class ProducerStateEntry:
    """The state of one producer. `batches` has the oldest batch first; `last_timestamp` (ms) is that of the last batch or
    marker.
    """

    __slots__ = (*_FIELDS, "packed")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_OFFSET,
        batches: tuple[BatchMetadata, ...] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches = batches
        self.packed: bytes | None = None

    @classmethod
    def from_snapshot(cls, entry: ProducerEntry) -> ProducerStateEntry:
        """Return the state that a snapshot's entry describes, which has at most one batch."""
        batches: tuple[BatchMetadata, ...] = ()
        if entry.last_offset >= 0:
            batches = (BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp),)
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp,
            max(entry.current_txn_first_offset, NO_OFFSET),
            batches,
        )

    def pack(self) -> bytes:
        """Return the entry's bytes in a snapshot, and keep them as `packed`. Only for an entry in a manager's map, which does not
        change.
        """
        last_sequence, last_offset, offset_delta = self.batches[-1][:3] if self.batches else (NO_SEQUENCE, NO_OFFSET, 0)
        self.packed = pack_entry(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )
        return self.packed

    def copy(self) -> ProducerStateEntry:
        """Return a mutable copy."""
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
            self.batches,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"ProducerStateEntry({fields})"

    @property
    def is_empty(self) -> bool:
        """Whether no batch is known. The epoch may nevertheless be known, from a marker."""
        return not self.batches

    @property
    def has_open_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest known batch."""
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the known batch with the same epoch and the same first and last sequence as `header`, or None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def set_epoch(self, producer_epoch: int) -> None:
        """Change the epoch, and drop the batches of the old one."""
        if producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = producer_epoch

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Add a batch of this epoch."""
        self.set_epoch(producer_epoch)
        self.batches = (*self.batches[1 - BATCHES_KEPT :], batch)
        self.last_timestamp = batch.timestamp
