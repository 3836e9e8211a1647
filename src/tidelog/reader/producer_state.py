"""Derives the state of a log's producers from its batches: open and aborted transactions (spec §9; KIP-98).

A snapshot contains the state at an offset. Replaying the batches after the snapshot gives the state at any later offset. A
transaction begins with its producer's first transactional batch and ends with the coordinator's marker, a control batch with the
same producer id. Records are stable up to the start of the earliest transaction that is open or whose marker is not below the
high watermark.

This module does not read the log. The caller walks the log and passes headers (v2 only; older formats have no producer ids).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.formats.producer_snapshot import ProducerEntry
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, EndTxnMarker


class CompletedTxn(NamedTuple):
    """A transaction that was ended by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerState:
    """The state of producers, by producer id, as of `map_end_offset`, the offset after the last applied batch. Transactions that
    completed before `start_offset` are unknown.
    """

    def __init__(self, entries: Iterable[ProducerEntry] = (), map_end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        self.start_offset = map_end_offset
        self.map_end_offset = map_end_offset
        self.completed: list[CompletedTxn] = []
        self.aborted: list[AbortedTxn] = []

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        return {
            entry.producer_id: entry.current_txn_first_offset
            for entry in self.producers.values()
            if entry.current_txn_first_offset >= 0
        }

    def first_unstable_offset(self, high_watermark: int | None = None) -> int | None:
        """Return the start of the first undecided transaction, or None if every transaction is decided.

        A completed transaction is undecided until its marker is below `high_watermark`. None means that all markers are below the
        high watermark.
        """
        firsts = list(self.open_transactions.values())
        if high_watermark is not None:
            firsts += [txn.first_offset for txn in self.completed if txn.last_offset >= high_watermark]
        return min(firsts, default=None)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after `completed` has ended: the start of the first open transaction of a different
        producer, or else the offset after the marker.
        """
        others = [first for producer_id, first in self.open_transactions.items() if producer_id != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    def apply(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> CompletedTxn | None:
        """Advance the state by one batch. `marker` is the type of a transaction marker, or None for any other batch.

        Returns the transaction that the batch completes, if any.
        """
        self.map_end_offset = header.next_offset
        if header.producer_id < 0:
            return None
        if header.is_control:
            return None if marker is None else self._end_transaction(header, marker)
        before = self.producers.get(header.producer_id)
        first_offset = -1 if before is None else before.current_txn_first_offset
        if header.is_transactional and first_offset < 0:
            first_offset = header.base_offset
        self.producers[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            header.last_sequence,
            header.last_offset,
            header.last_offset - header.base_offset,
            header.max_timestamp,
            -1 if before is None else before.coordinator_epoch,
            first_offset,
        )
        return None

    def _end_transaction(self, header: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        before = self.producers.get(header.producer_id)
        keeps_batch = before is not None and before.producer_epoch == header.producer_epoch
        self.producers[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            before.last_sequence if before is not None and keeps_batch else -1,
            before.last_offset if before is not None and keeps_batch else -1,
            before.offset_delta if before is not None and keeps_batch else 0,
            header.max_timestamp,
            marker.coordinator_epoch,
            -1,
        )
        if before is None or before.current_txn_first_offset < 0:
            return None  # The transaction has no records, or its records are gone.
        completed = CompletedTxn(
            header.producer_id, before.current_txn_first_offset, header.last_offset, marker.type is ControlType.ABORT
        )
        self.completed.append(completed)
        if completed.is_aborted:
            self.aborted.append(AbortedTxn(*completed[:3], self.last_stable_offset(completed)))
        return completed

    def entries(self) -> list[ProducerEntry]:
        """Return the producers as entries of a producer snapshot."""
        return list(self.producers.values())
