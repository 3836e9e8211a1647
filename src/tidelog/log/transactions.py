"""What read_committed must know of a log: how far it is decided, and which transactions were aborted (spec §5.4, §9; KIP-98).

The state of the producers at an offset comes from the last sound snapshot at or below it and the batches since. Replayed
to the log's end it says which transactions are open, whatever the indexes hold.

Aborted transactions of the past come from each segment's ``.txnindex``, if every entry agrees with the log: at its last
offset stands an ABORT marker of its producer. A segment without one (Kafka makes it with the first abort) or with one that
does not agree is walked instead, header by header, from the state at its base. So a lost index costs time, not aborted
records shown as if they had been committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import CorruptIndexError, CorruptSnapshotError, SegmentChangedError
from tidelog.log import names
from tidelog.log.producer_snapshot import ProducerEntry, read_snapshot
from tidelog.log.producer_state import ProducerState
from tidelog.log.txn_index import AbortedTxn
from tidelog.records.control import ControlType

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


class Transactions:
    """The transactions of one opened log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._snapshots: dict[int, list[ProducerEntry] | None] = {}
        self._aborted: dict[int, list[AbortedTxn]] = {}
        self._end_state: ProducerState | None = None

    @property
    def last_stable_offset(self) -> int:
        """See `Log.last_stable_offset`. What only the checkpoint withholds is told, once: in a running broker it lags behind."""
        log, mark = self._log, self._log.high_watermark
        stable = self._stable_below(mark)
        if mark is not None and stable < self._stable_below(None):
            because = "" if stable == mark else f"{stable}, before a transaction that ends at or past "
            text = (
                f"read_committed ends at {because}the checkpointed high watermark {mark}; the log goes on to {log.log_end_offset}"
            )
            log.notices.tell(log.directory, text)
        return stable

    def _stable_below(self, high_watermark: int | None) -> int:
        log = self._log
        stable = log.log_end_offset if high_watermark is None else high_watermark
        first_unstable = self.end_state().first_unstable_offset(high_watermark)
        return max(log.log_start_offset, stable if first_unstable is None else min(stable, first_unstable))

    def end_state(self) -> ProducerState:
        """Return the producers' state at the log's end. Transactions that end above the high watermark are in `completed`."""
        if self._end_state is None:
            log = self._log
            below = log.log_end_offset if log.high_watermark is None else log.high_watermark
            self._end_state = self._replay(self._snapshot_state(below), log.log_end_offset)
        return self._end_state

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """See `Log.aborted_transactions`."""
        aborted: list[AbortedTxn] = []
        for segment in self._log.segments_from(start_offset):
            if segment.base_offset >= end_offset and not self._reach_into(segment.base_offset, end_offset):
                break
            aborted += self._of_segment(segment)
        return [txn for txn in aborted if txn.last_offset >= start_offset and txn.first_offset < end_offset]

    def _reach_into(self, offset: int, end_offset: int) -> bool:
        """Say whether a transaction open at `offset` began below `end_offset`."""
        state = self._replay(self._snapshot_state(offset), offset)
        return any(first < end_offset for first in state.open_transactions.values())

    def _of_segment(self, segment: Segment) -> list[AbortedTxn]:
        if segment.base_offset not in self._aborted:
            # An index without entries is no better than none: Kafka makes the file for the first entry.
            self._aborted[segment.base_offset] = self._from_index(segment) or self._from_log(segment)
            segment.close()
        return self._aborted[segment.base_offset]

    def _from_index(self, segment: Segment) -> list[AbortedTxn] | None:
        """Return what a segment's index tells; None if it has none, or one that does not agree with the log."""
        path = segment.index_path(names.TXN_INDEX_SUFFIX)
        try:
            index = segment.open_txn_index()
            if index is None:
                return None
            for txn in index.aborted:
                self._check(segment, txn, path)
        except CorruptIndexError as error:
            self._log.notices.tell(path, f"{error.message}: aborted transactions are read from the log")
            return None
        known = {txn.last_offset for txn in index.aborted}
        last = segment.next_offset
        missing = [
            txn
            for txn in self.end_state().aborted
            if segment.base_offset <= txn.last_offset < last and txn.last_offset not in known
        ]
        if missing:
            self._log.notices.tell(path, f"lacks {len(missing)} aborted transactions, read from the log")
        return sorted([*index.aborted, *missing], key=lambda txn: txn.last_offset)

    def _check(self, segment: Segment, txn: AbortedTxn, path: Path) -> None:
        header = segment.translate_offset(txn.last_offset)
        if (
            header is None
            or not header.is_control
            or header.producer_id != txn.producer_id
            or header.base_offset != txn.last_offset
        ):
            raise CorruptIndexError("an aborted transaction without its marker", path=path, found=txn.last_offset)
        marker = segment.end_txn_marker(header)
        if marker is not None and marker.type is not ControlType.ABORT:
            raise CorruptIndexError("an aborted transaction that was committed", path=path, found=txn.last_offset)
        owner = self._log.segment_for(txn.first_offset)
        if txn.first_offset >= txn.last_offset or (owner is None and txn.first_offset < 0):
            raise CorruptIndexError("an aborted transaction's first offset", path=path, found=txn.first_offset)
        # Where the first batch is no longer there (compaction, retention) the entry covers more than there is: no harm.
        first = owner.translate_offset(txn.first_offset) if owner is not None else None
        if first is None or first.base_offset > txn.first_offset:
            return
        if first.base_offset != txn.first_offset or first.producer_id != txn.producer_id or not first.is_transactional:
            raise CorruptIndexError("an aborted transaction that begins elsewhere", path=path, found=txn.first_offset)

    def _from_log(self, segment: Segment) -> list[AbortedTxn]:
        """Walk a segment for its ABORT markers; each that ends a transaction with records counts."""
        path = segment.index_path(names.TXN_INDEX_SUFFIX)
        state = self._replay(self._snapshot_state(segment.base_offset), segment.base_offset)
        before = len(state.aborted)
        aborted = self._replay(state, segment.next_offset).aborted[before:]
        if aborted:
            self._log.notices.tell(path, f"is missing or damaged: {len(aborted)} aborted transactions were read from the log")
        return aborted

    def _snapshot_state(self, offset: int) -> ProducerState:
        """Return the state of the last sound snapshot at or below `offset`, the empty one at the log's start without any."""
        for snapshot in reversed(self._log.snapshots):
            if snapshot <= offset:
                entries = self._snapshot(snapshot)
                if entries is not None:
                    return ProducerState(entries, snapshot)
        return ProducerState(map_end_offset=self._log.segments[0].base_offset if self._log.segments else 0)

    def _snapshot(self, offset: int) -> list[ProducerEntry] | None:
        if offset not in self._snapshots:
            path = self._log.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)
            try:
                self._snapshots[offset] = read_snapshot(path)
            except CorruptSnapshotError as error:
                self._log.notices.tell(path, f"{error.message}: the one before it is taken")
                self._snapshots[offset] = None
            except SegmentChangedError:
                self._snapshots[offset] = None  # Kafka removes snapshots as it goes; an older one does as well.
        return self._snapshots[offset]

    def _replay(self, state: ProducerState, end_offset: int) -> ProducerState:
        """Bring a state forward to `end_offset`, from the batches of the segments (also those below the log's start)."""
        if state.map_end_offset >= end_offset:
            return state
        start = state.map_end_offset
        for segment in self._log.segments_from(start):
            if segment.base_offset >= end_offset:
                break
            for header in segment.headers(segment.floor_position(start)):
                if header.last_offset < start:
                    continue
                if header.base_offset >= end_offset:
                    continue  # Not the end: no checksum covers an offset, and the walk sees from the next one that it lies.
                is_marker = header.is_control and header.producer_id >= 0
                state.apply(header, segment.end_txn_marker(header) if is_marker else None)
            segment.close()
        state.map_end_offset = end_offset
        return state
