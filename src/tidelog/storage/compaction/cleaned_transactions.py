"""The transactions that compaction meets on its way through a log: which batches and markers may go (spec §15; KIP-98).

    what comes by                       may go
    batch of an aborted transaction     at once: nobody may see it
    other batch                         as its records' keys say
    ABORT or COMMIT marker              once no batch of its transaction was met on this way (and then not before its horizon)
    marker without its record           at once: its record went before
    other control records               never

The aborted transactions come from the transaction indexes and are announced in time; what is not among them was committed, as
compaction stays below the last stable offset. Of the aborted ones those that still have batches go into the index of the
segment that is being written, when their marker comes by.

One for each pass: the cleaner keeps one while it fills its map, and another one over all groups of segments that it writes.
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
    """An aborted transaction whose marker has not come by; `was_seen` if one of its batches has."""

    __slots__ = ("txn", "was_seen")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.was_seen = False


class CleanedTransactions:
    """Decides which batches and markers of transactions compaction drops. `cleaned_index` is where aborted transactions that
    still have batches are noted, None for nowhere.
    """

    def __init__(self, cleaned_index: TxnIndexFile | None = None) -> None:
        self.cleaned_index = cleaned_index
        self._noted: list[AbortedTxn] = []
        self._coming: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()

    def add_aborted_transactions(self, transactions: Iterable[AbortedTxn]) -> None:
        """Announce aborted transactions before their first batch comes by; one that spans segments may be announced again."""
        for txn in transactions:
            heapq.heappush(self._coming, (txn.first_offset, txn))

    def on_control_batch(self, header: BatchHeader, batch: memoryview, path: PathLike = None) -> bool:
        """Note a control batch; return whether it may go. On any thread. Raises InvalidRecordError."""
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
        """Write the aborted transactions whose markers came by into the index. Raises StorageError."""
        noted, self._noted = self._noted, []
        for txn in noted:
            assert self.cleaned_index is not None
            self.cleaned_index.append(txn)

    def on_batch(self, header: BatchHeader) -> bool:
        """Note a batch of records; return whether it may go, as part of an aborted transaction."""
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
        """Below this offset no batch that comes by is part of an aborted transaction; `on_committed` does for them."""
        if self._aborted:
            return 0
        return self._coming[0][0] if self._coming else INT64_MAX

    def on_committed(self, producer_ids: Iterable[int]) -> None:
        """Note that transactional batches of these producers came by, below `undisturbed_end`."""
        self._committed.update(producer_ids)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(txn.producer_id, _Ongoing(txn))
