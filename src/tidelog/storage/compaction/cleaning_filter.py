"""Compaction's decision for each batch: keys, tombstones, transactions and producers together (spec §15).

    batch                                                  without records left it
    last data batch of a producer that is still active     stays, empty: it has the last sequence
    marker, of such a producer without data, same epoch    stays, empty: it has the epoch
    of an aborted transaction                              goes, unread
    marker whose transaction is gone, horizon passed       goes
    any other                                              goes

A marker whose transaction is gone stays until its delete horizon, which it is given on that occasion. The records of other
batches are `records.compaction`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.records.batch import BatchHeader, PathLike
from tidelog.records.compaction import LatestRecordFilter
from tidelog.records.filter import BatchDecision, BatchRetention, FilterResult, OpenBatch, Selected
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.skimpy_offset_map import SkimpyOffsetMap
from tidelog.storage.producers.producer_state_manager import ProducerStateManager


class LastRecord(NamedTuple):
    """The batch that the log must keep for a producer: the batch that ends at `last_data_offset`, or, where that is -1, its
    epoch.
    """

    last_data_offset: int
    producer_epoch: int


def last_records_of_active_producers(producer_state: ProducerStateManager) -> dict[int, LastRecord]:
    """Return what must be kept, by producer id."""
    return {
        producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
        for producer_id, entry in producer_state.active_producers.items()
    }


class CleaningFilter(LatestRecordFilter):
    """The filter for one source segment; `transactions` continue from segment to segment."""

    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
        retains_old_tombstones: bool,
        path: PathLike = None,
    ) -> None:
        """`retains_old_tombstones` is about v0 and v1, which know no delete horizon. `path` is for errors."""
        super().__init__(
            offset_map.table,
            now_ms,
            delete_retention_ms,
            kept_ends=[last.last_data_offset for last in last_records.values() if last.last_data_offset >= 0],
            retains_old_tombstones=retains_old_tombstones,
        )
        self._transactions = transactions
        self._last_records = last_records
        self._path = path
        self._discards_records = False

    def check_batch_retention(self, header: BatchHeader, batch: memoryview) -> BatchDecision:
        """Decide about a batch, and whether `select` is to look at its records."""
        if header.is_control:
            can_go = self._transactions.on_control_batch(header, batch, self._path)
            horizon_ms = header.delete_horizon_ms
            self._discards_records = can_go and horizon_ms is not None and horizon_ms <= self.now_ms
        else:
            can_go = self._discards_records = self._transactions.on_batch(header)
        if self._is_last_of_producer(header):
            retention = BatchRetention.RETAIN_EMPTY
        elif self._discards_records:
            retention = BatchRetention.DELETE
        else:
            retention = BatchRetention.DELETE_EMPTY
        return BatchDecision(retention, can_go and header.is_control)

    def take_run(self, view: memoryview, index: int, result: FilterResult) -> int:
        """Filter what can be done at one go."""
        transactions = self._transactions
        end, producers = self.take_transactional_run(view, index, result, transactions.undisturbed_end)
        transactions.on_committed(producers)
        return end

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def select(self, opened: OpenBatch, keep: bytearray, path: PathLike = None) -> Selected:
        """Mark the records of a v2 batch that stay."""
        if self._discards_records:
            return Selected(0, False, -1)
        if not opened.header.is_control:
            return super().select(opened, keep, path)
        records = opened.records(path)
        keep[:] = b"\x01" * len(records)
        return Selected(
            len(records),
            any(record.value is None for record in records),
            max((record.offset for record in records), default=-1),
        )
