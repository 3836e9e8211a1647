"""The rule of compaction: keep the latest record of each key, according to a table of keys (spec §15).

    record                               kept
    above the table's latest offset      yes
    without a key                        no
    not its key's latest                 no
    its key's latest                     yes; a tombstone until its batch's delete horizon has come (v0, v1: until the
                                         segment is old enough, which the caller knows)

`KeyMapper` fills the table from batches. `LatestRecordFilter` decides for `filter.filter_to` which records are kept. Both process
consecutive plain batches (a run) in one call, and all other batches one by one. Neither handles transactions: the cleaner calls
`KeyMapper.skip` for some batches and overrides `LatestRecordFilter.check_batch_retention`. A run includes transactional batches
only below an offset that the cleaner passes, and their producers are returned.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable

from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, BatchHeader, PathLike, check_crc
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES, Scratch
from tidelog.records.filter import FilterResult, OpenBatch, RecordFilter, Selected, open_batch, raise_fault
from tidelog.records.kernel import OffsetTable
from tidelog.records.records import Record, iter_records

_NO_HORIZON = -1


class KeyMapper:
    """Puts the keys of records at or above `min_offset` into a table, until the table has `max_entries`."""

    def __init__(self, table: OffsetTable, min_offset: int, max_entries: int) -> None:
        self._table = table
        self._min_offset = min_offset
        self._max_entries = max_entries
        self._pass = kernel.MapPass(table, min_offset, max_entries)
        self._messages_read = 0
        self._scratch = Scratch()

    @property
    def is_full(self) -> bool:
        """Whether the table had no room for a record. The table's latest offset is then the offset of the last record that was
        added.
        """
        return self._pass.is_full

    @property
    def messages_read(self) -> int:
        return self._pass.messages_read + self._messages_read

    def skip(self, header: BatchHeader, messages: int) -> None:
        """Skip a batch whose records must not be put into the table."""
        self._messages_read += messages
        if header.last_offset >= self._min_offset:
            self._table.latest_offset = header.last_offset

    def add_run(self, view: memoryview, index: int, transactional_end: int = -1) -> tuple[int, array[int]]:
        """Add the run of plain batches at `view[index:]`. Transactional batches below the offset `transactional_end` are
        included.

        Returns the index of the first batch that was not added, and the producer ids of the transactional batches.
        """
        self._pass.transactional_end = transactional_end
        end = self._pass.add_batches(view, index, len(view))
        return end, self._pass.take_producers()

    def add(
        self,
        header: BatchHeader,
        batch: memoryview,
        *,
        path: PathLike = None,
        limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    ) -> None:
        """Add one batch of any kind. Raises CorruptBatchError, InvalidRecordError, DecompressionError."""
        check_crc(header, batch, path)
        if header.magic < 2:
            self._add_messages(header, iter_records(header, batch, check_crc=False, path=path, limit_bytes=limit_bytes))
            return
        opened = open_batch(header, batch, path, limit_bytes, self._scratch)
        fault = self._pass.add_records(
            opened.data, opened.start, opened.end, header.record_count, header.base_offset, header.last_offset
        )
        if fault < 0:
            raise_fault(fault, self._pass.fault_position, opened, path)

    def _add_messages(self, header: BatchHeader, records: Iterable[Record]) -> None:
        for record in records:
            if record.key is not None and record.offset >= self._min_offset:
                if self._table.size >= self._max_entries:
                    self._pass.is_full = True
                    return
                self._table.put(record.key, record.offset)
            self._messages_read += 1
        self.skip(header, 0)


class LatestRecordFilter(RecordFilter):
    """Keeps the records that the table requires. `kept_ends` has the last offsets of batches of which at least the header must be
    kept.
    """

    def __init__(
        self,
        table: OffsetTable,
        now_ms: int,
        delete_retention_ms: int,
        *,
        kept_ends: Iterable[int] = (),
        retains_old_tombstones: bool = True,
    ) -> None:
        """`retains_old_tombstones` applies to v0 and v1, whose batches have no delete horizon."""
        super().__init__(now_ms, delete_retention_ms)
        self.retains_old_tombstones = retains_old_tombstones
        self._table = table
        horizon_ms = self.new_delete_horizon_ms
        self._pass = kernel.CleanPass(
            table, now_ms, _NO_HORIZON if horizon_ms is None else horizon_ms, array("q", sorted(kept_ends))
        )
        self._without_key = 0
        self._out = bytearray()

    @property
    def without_key(self) -> int:
        """The number of records that were removed because they have no key."""
        return self._pass.without_key + self._without_key

    def should_retain_record(self, header: BatchHeader, record: Record) -> bool:
        """Return whether to keep a v0 or v1 message."""
        if record.offset > self._table.latest_offset:
            return True
        if record.key is None:
            self._without_key += 1
            return False
        if record.value is None and not self._retains_tombstones(header):
            return False
        return record.offset >= self._table.get(record.key)

    def _retains_tombstones(self, header: BatchHeader) -> bool:
        if header.magic < 2:
            return self.retains_old_tombstones
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is None or self.now_ms < horizon_ms

    def select(self, opened: OpenBatch, keep: bytearray, path: PathLike = None) -> Selected:
        """Set `keep` to 1 for each kept record of a v2 batch."""
        header = opened.header
        retained = self._pass.select(
            opened.data,
            opened.start,
            opened.end,
            header.base_offset,
            header.last_offset,
            self._retains_tombstones(header),
            keep,
        )
        if retained < 0:
            raise_fault(retained, self._pass.fault_position, opened, path)
        return Selected(retained, self._pass.has_tombstones, self._pass.last_retained_offset)

    def take_run(self, view: memoryview, index: int, result: FilterResult) -> int:
        """Filter the run of plain batches at `view[index:]`. Return the index of the first batch that is not plain."""
        return self.take_transactional_run(view, index, result, -1)[0]

    def take_transactional_run(
        self, view: memoryview, index: int, result: FilterResult, transactional_end: int
    ) -> tuple[int, array[int]]:
        """Do what `take_run` does, but include transactional batches below the offset `transactional_end`. Also return their
        producer ids.
        """
        cleaning = self._pass
        cleaning.transactional_end = transactional_end
        # A batch grows only if times are rewritten, and then only slightly. If it does not fit, it is filtered alone.
        room = 2 * (len(view) - index) + HEADER_BYTES
        if len(self._out) < room:
            self._out = bytearray(room)
        cleaning.messages_read = cleaning.messages_retained = 0
        cleaning.max_offset = cleaning.max_timestamp = cleaning.offset_of_max_timestamp = -1
        end = cleaning.filter_batches(view, index, len(view), self._out)
        if end > index:
            result.data += memoryview(self._out)[: cleaning.written]
            result.messages_read += cleaning.messages_read
            result.note(cleaning.messages_retained, cleaning.max_offset, cleaning.max_timestamp, cleaning.offset_of_max_timestamp)
        return end, cleaning.take_producers()


def new_table(slots: int) -> OffsetTable:
    """Return an empty table, with a new salt."""
    return OffsetTable(slots, os.urandom(16))
