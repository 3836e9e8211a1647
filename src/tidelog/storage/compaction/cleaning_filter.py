"""Decides for each batch whether compaction keeps it, by its keys, tombstones, transactions and producers (spec §15).

    batch                                                  if no records are left, the batch
    last data batch of a producer that is still active     stays empty: it holds the last sequence
    marker of an active producer without data, same epoch  stays empty: it holds the epoch
    batch of an aborted transaction                        is removed, unread
    marker whose transaction is gone, horizon passed       is removed
    any other                                              is removed

A marker whose transaction is gone gets a delete horizon, and stays until that time. `records.compaction` decides which records of
other batches are kept.
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
    """What the log must keep for a producer: the batch that ends at `last_data_offset`, or, if that is -1, the producer's
    epoch.
    """

    last_data_offset: int
    producer_epoch: int


def last_records_of_active_producers(producer_state: ProducerStateManager) -> dict[int, LastRecord]:
    """Return what the log must keep for each active producer, by producer id."""
    return {
        producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
        for producer_id, entry in producer_state.active_producers.items()
    }


class CleaningFilter(LatestRecordFilter):
    """Filters a group of segments. Call `begin_source` before each segment. All groups of a pass share `transactions`."""

    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        super().__init__(
            offset_map.table,
            now_ms,
            delete_retention_ms,
            kept_ends=[last.last_data_offset for last in last_records.values() if last.last_data_offset >= 0],
        )
        self._transactions = transactions
        self._last_records = last_records
        self._path: PathLike = None
        self._discards_records = False

    def begin_source(self, path: PathLike, *, retains_old_tombstones: bool) -> None:
        """Filter the next segment. `retains_old_tombstones` applies to formats v0 and v1, which have no delete horizon; `path` is
        for error messages.
        """
        self._path = path
        self.retains_old_tombstones = retains_old_tombstones

    def check_batch_retention(self, header: BatchHeader, batch: memoryview) -> BatchDecision:
        """Decide what to keep of a batch, and whether `select` must examine its records."""
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
        """Filter a run of batches that can be handled together."""
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
        """Mark the records of a v2 batch that are kept."""
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
