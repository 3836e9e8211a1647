"""Transactions during compaction: which batches and markers may be removed (spec §15; KIP-98).

    element                             is removed
    batch of an aborted transaction     at once: no consumer may read it
    other batch                         record by record, by the records' keys
    ABORT or COMMIT marker              once the pass finds no batch of its transaction, but not before its delete horizon
    marker without its record           at once: its record was removed before
    other control records               never

The cleaner reads the aborted transactions from the transaction indexes, and adds them before it reaches their batches. All other
transactions were committed, because compaction stays below the last stable offset. An aborted transaction that still has batches
is written to the new segment's index when the pass reaches its marker.

The cleaner uses one `CleanedTransactions` while it fills the map, and a second one for all groups of segments that it writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tidelog.config import INT64_MAX
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.batch import BatchHeader, PathLike
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records
from tidelog.storage.segment.txn_index_file import TxnIndexFile


class _Ongoing:
    """An aborted transaction whose marker has not been reached yet. `was_seen` is True once one of its batches has been
    reached.
    """

    __slots__ = ("txn", "was_seen")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.was_seen = False


class CleanedTransactions:
    """Decides which batches and markers of transactions compaction removes. Aborted transactions that still have batches are
    written to `cleaned_index`, if there is one.
    """

    def __init__(self, cleaned_index: TxnIndexFile | None = None) -> None:
        self.cleaned_index = cleaned_index
        self._noted: list[AbortedTxn] = []
        self._coming: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()

    def add_aborted_transactions(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions before their first batch is reached. A transaction that spans segments may be added again."""
        for txn in transactions:
            heapq.heappush(self._coming, (txn.first_offset, txn))

    def on_control_batch(self, header: BatchHeader, batch: memoryview, path: PathLike = None) -> bool:
        """Process a control batch, and return whether it may be removed. Any thread may call it. Raises InvalidRecordError for a
        bad record.
        """
        self._begin_up_to(header.last_offset)
        record = next(iter_records(header, batch, check_crc=False, path=path), None)
        if record is None:
            return True
        control_type = parse_control_type(record.key, path=path, position=header.position)
        if control_type is ControlType.ABORT:
            ongoing = self._aborted.pop(header.producer_id, None)
            if ongoing is None or not ongoing.was_seen:
                return True
            if self.cleaned_index is not None:
                self._noted.append(ongoing.txn)
            return False
        if control_type is ControlType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.remove(header.producer_id)
        return False

    def write_noted(self) -> None:
        """Write the aborted transactions whose markers were reached into the index. Raises StorageError if that fails."""
        noted, self._noted = self._noted, []
        for txn in noted:
            assert self.cleaned_index is not None
            self.cleaned_index.append(txn)

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch, and return whether it may be removed because its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        ongoing.was_seen = True
        return True

    @property
    def undisturbed_end(self) -> int:
        """Return the offset below which no further batch belongs to an aborted transaction. For batches below it, `on_committed`
        may be called instead of `on_batch`.
        """
        if self._aborted:
            return 0
        return self._coming[0][0] if self._coming else INT64_MAX

    def on_committed(self, producer_ids: Iterable[int]) -> None:
        """Record that the pass found transactional batches of these producers below `undisturbed_end`."""
        self._committed.update(producer_ids)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(txn.producer_id, _Ongoing(txn))
