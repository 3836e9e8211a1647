"""A log's transactions for read_committed: the last stable offset and the aborted transactions (spec §5.4, §9; KIP-98).

The producers' state at an offset comes from the last valid snapshot at or below that offset, and the batches after the snapshot.
Replaying to the log's end shows which transactions are open, independent of the indexes.

Past aborted transactions come from the same kind of replay, segment by segment, each from the snapshot at the segment's base.
Kafka stores aborted transactions in the segment's ``.txnindex``. Here that file is only a hint, and is compared with the log:

* for each ABORT marker of a transaction with records, the index must have an entry with the transaction's first offset, or with
  an earlier offset if the log no longer has the transaction's first records;
* for each entry, the log must have an ABORT marker, even if compaction has removed the rest of the transaction.

A difference is reported, and the log takes precedence. So a lost or truncated index only causes a notice, and aborted records
never appear as committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import CorruptIndexError, CorruptSnapshotError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.producer_snapshot import ProducerEntry, read_snapshot
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import MAX_OFFSET
from tidelog.reader.producer_state import CompletedTxn, ProducerState
from tidelog.records.batch import check_crc
from tidelog.records.control import ControlType
from tidelog.records.markers import MARKER_BATCH_BYTES

if TYPE_CHECKING:
    from tidelog.reader.log_segments import LogSegments
    from tidelog.reader.segment import Segment


MAX_REPLAYED_BYTES = 4 << 30
MAX_REPLAYED_BATCHES = 65_536
"""The maximum number of batches that are replayed to check a snapshot against the log."""


class Transactions:
    """The transactions of one opened log."""

    def __init__(self, log: LogSegments) -> None:
        self._log = log
        self._snapshots: dict[int, list[ProducerEntry] | None] = {}
        self._agree: dict[int, bool] = {}
        """For each snapshot offset, whether the snapshot agrees with this log."""
        self._aborted: dict[int, list[AbortedTxn]] = {}
        self._end_state: ProducerState | None = None
        self._state: ProducerState | None = None
        self._checked: dict[int, int] = {}
        """For each open transaction, by its first offset: the log end up to which the log was checked for its marker."""

    def go_on_from(self, before: Transactions) -> None:
        """Take over what `before` replayed when the same log was shorter. Do not use `before` afterwards."""
        state = before._end_state
        if state is None or self._end_state is not None or state.map_end_offset > self._log.log_end_offset:
            return
        # Keep the transactions that the last segment and the high watermark may still need.
        base, mark = self._log.segments[-1].base_offset, before._log.high_watermark
        least = base if mark is None else min(base, mark)
        state.completed = [txn for txn in state.completed if txn.last_offset >= least]
        state.aborted = [txn for txn in state.aborted if txn.last_offset >= least]
        state.start_offset = max(state.start_offset, least)
        self._end_state = self._replay(state, self._log.log_end_offset)
        self._checked = before._checked

    @property
    def last_stable_offset(self) -> int:
        """See `Log.last_stable_offset`. If records are withheld only because of the high-watermark checkpoint, a notice says so
        once. A running broker's checkpoint lags behind.
        """
        log, mark = self._log, self._log.high_watermark
        stable = self._stable_below(mark)
        if mark is not None and stable < self._stable_below(None):
            because = "" if stable == mark else f"{stable}, before a transaction that ends at or past "
            text = f"read_committed ends at {because}the checkpointed high watermark {mark}; the log ends at {log.log_end_offset}"
            log.notices.note(log.directory, text)
        return stable

    def _stable_below(self, high_watermark: int | None) -> int:
        log = self._log
        stable = log.log_end_offset if high_watermark is None else high_watermark
        first_unstable = self.end_state().first_unstable_offset(high_watermark)
        if first_unstable is None or first_unstable >= stable:
            return max(log.log_start_offset, stable)
        self._check_open(first_unstable)
        return max(log.log_start_offset, first_unstable)

    def _check_open(self, offset: int) -> None:
        """Check that the transaction that began at `offset` is really open, because read_committed ends there.

        Damage in the header of its first batch, or in the marker that ended it, may make a transaction seem open. Batches that
        were checked before are not walked again. Raises CorruptBatchError.
        """
        start, end = self._checked.get(offset, offset), self._log.log_end_offset
        for segment in self._log.segments_from(start) if start < end else ():
            for header in segment.headers(segment.floor_position(start)):
                if header.last_offset < start:
                    continue
                is_first = header.base_offset <= offset <= header.last_offset
                seems_no_marker = header.size == MARKER_BATCH_BYTES and not header.is_control and header.base_offset > offset
                if is_first or seems_no_marker:
                    check_crc(header, segment.read_batch(header), segment.log_path)
            segment.close()
        self._checked[offset] = end

    def end_state(self) -> ProducerState:
        """Return the producers' state at the log's end. Its `completed` includes transactions whose marker is at or above the
        high watermark.
        """
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

    def open_at(self, offset: int) -> dict[int, int]:
        """See `Log.open_transactions`."""
        return self._state_at(offset).open_transactions

    def _reach_into(self, offset: int, end_offset: int) -> bool:
        """Return whether a transaction that is open at `offset` began below `end_offset`."""
        return any(first < end_offset for first in self._state_at(offset).open_transactions.values())

    def _of_segment(self, segment: Segment) -> list[AbortedTxn]:
        if segment.base_offset not in self._aborted:
            state = self._state_behind(segment)
            walked = [txn for txn in state.aborted if txn.last_offset >= segment.base_offset]
            path = segment.index_path(names.TXN_INDEX_SUFFIX)
            try:
                entries = self._entries(segment)
                if entries:
                    self._compare(segment, entries, state)
            except CorruptIndexError as error:
                found = "" if error.found is None else f" ({error.found})"
                self._log.notices.note(path, f"{error.message}{found}: aborted transactions are read from the log")
                entries = []
            else:
                # An index without entries counts as missing: Kafka creates the file for the first entry.
                if walked and not entries:
                    text = f"is missing or damaged: {len(walked)} aborted transactions were read from the log"
                    self._log.notices.note(path, text)
            self._aborted[segment.base_offset] = entries or walked
            if state is self._state:  # The remaining replay needs at most each producer's last transaction.
                state.completed = list({txn.producer_id: txn for txn in state.completed}.values())
            segment.close()
        return self._aborted[segment.base_offset]

    def _entries(self, segment: Segment) -> list[AbortedTxn]:
        """Return a segment's index entries for the batches that existed when the folder was listed. The owner may have added
        entries since then.
        """
        index = segment.open_txn_index()
        if index is None:
            return []
        if segment.may_have_grown:
            return [txn for txn in index.aborted if txn.last_offset < segment.next_offset]
        return index.aborted

    def _compare(self, segment: Segment, entries: list[AbortedTxn], state: ProducerState) -> None:
        """Raise CorruptIndexError if entries and log disagree."""
        by_end = {entry.last_offset: entry for entry in entries}
        completed = {txn.last_offset: txn for txn in state.completed}
        # The earliest possible start of an entry. A replay from a snapshot knows all transactions that were open at the snapshot.
        earliest = 0 if state.start_offset <= self._log.segments[0].base_offset else state.start_offset
        free_from: dict[int, int] = {}
        for offset in sorted({*by_end, *completed}):
            entry, txn = by_end.get(offset), completed.get(offset)
            if entry is not None:
                self._compare_entry(segment, entry, txn, free_from.get(entry.producer_id, earliest))
            elif txn is not None and txn.is_aborted and offset >= segment.base_offset:
                raise CorruptIndexError("an aborted transaction is not in the index", found=offset)
            if txn is not None:
                free_from[txn.producer_id] = offset + 1

    def _compare_entry(self, segment: Segment, entry: AbortedTxn, txn: CompletedTxn | None, earliest: int) -> None:
        if txn is None:
            header = segment.translate_offset(entry.last_offset)
            if header is None or (header.base_offset, header.producer_id) != (entry.last_offset, entry.producer_id):
                raise CorruptIndexError("an entry of the index has no ABORT marker in the log", found=entry.last_offset)
            marker = segment.end_txn_marker(header) if header.is_control else None
            if not header.is_control or (marker is not None and marker.type is not ControlType.ABORT):
                raise CorruptIndexError("an entry of the index has no ABORT marker in the log", found=entry.last_offset)
        elif txn.producer_id != entry.producer_id:
            raise CorruptIndexError("an entry of the index has no ABORT marker in the log", found=entry.last_offset)
        elif not txn.is_aborted:
            raise CorruptIndexError("the index lists a committed transaction as aborted", found=entry.last_offset)
        elif txn.first_offset == entry.first_offset:
            return
        # If compaction or retention removed records, the entry begins before the remaining records.
        if not earliest <= entry.first_offset <= (entry.last_offset if txn is None else txn.first_offset):
            raise CorruptIndexError("an entry of the index has the wrong first offset", found=entry.first_offset)

    def _state_behind(self, segment: Segment) -> ProducerState:
        """Return the state after a segment, replayed from the segment's base or an earlier offset."""
        end_state = self._end_state
        if segment.is_last and end_state is not None and end_state.start_offset <= segment.base_offset:
            return end_state
        end = segment.next_offset if segment.next_base_offset is None else segment.next_base_offset
        state = self._state_at(segment.base_offset)
        state.aborted = []
        return self._replay(state, end)

    def _state_at(self, offset: int) -> ProducerState:
        """Return the state at `offset`. Continue from the last requested state if no snapshot is nearer."""
        snapshot = max((one for one in self._log.snapshots if one <= offset), default=0)
        state = self._state
        if state is None or not snapshot <= state.map_end_offset <= offset:
            state = self._snapshot_state(offset)
        self._state = self._replay(state, offset)
        return self._state

    def _snapshot_state(self, offset: int) -> ProducerState:
        """Return the state of the last valid snapshot at or below `offset`, or the empty state at the log's start."""
        for snapshot in reversed(self._log.snapshots):
            if snapshot <= offset:
                entries = self._snapshot(snapshot)
                if entries is not None and self._is_of_this_log(snapshot, entries):
                    return ProducerState(entries, snapshot)
        return ProducerState(map_end_offset=self._log.segments[0].base_offset if self._log.segments else 0)

    def _is_of_this_log(self, offset: int, entries: list[ProducerEntry]) -> bool:
        """Return whether a snapshot has the same open transactions as a replay of the log from the previous snapshot.

        A snapshot's checksum shows that it is complete, not that it belongs to this log. The snapshot is trusted if the replay
        would be long, or if the transactions open at its start are unknown. In a compacted log, the replay may find more open
        transactions than the snapshot has: a transaction from before the previous snapshot may have ended, and its records and
        marker may be gone.
        """
        if offset not in self._agree:
            self._agree[offset] = True
            before = max((one for one in self._log.snapshots if one < offset and self._snapshot(one) is not None), default=0)
            segments = [
                one for one in self._log.segments if before < (one.next_base_offset or MAX_OFFSET) and one.base_offset < offset
            ]
            is_known = bool(segments) and (segments[0].base_offset == 0 or segments[0].base_offset <= before)
            if is_known and sum(segment.size_bytes for segment in segments) <= MAX_REPLAYED_BYTES:
                state = ProducerState(self._snapshot(before) or [] if before else [], before)
                if self._replay(state, offset, MAX_REPLAYED_BATCHES).map_end_offset < offset:
                    return True
                found = set(state.open_transactions.items())
                claimed = set(ProducerState(entries, offset).open_transactions.items())
                if self._log.is_compacted:
                    # A transaction from before the replay may have ended, and its marker may be gone. An open transaction is
                    # never compacted.
                    ended = all(first < before and not self._has_first(producer, first) for producer, first in found - claimed)
                    self._agree[offset] = claimed <= found and ended
                elif found != claimed:
                    path = self._log.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)
                    self._log.notices.note(path, "its open transactions differ from the log's: the snapshot before it is used")
                    self._agree[offset] = False
        return self._agree[offset]

    def _has_first(self, producer_id: int, first_offset: int) -> bool:
        """Return whether the log still has the first batch of a producer's transaction."""
        for segment in self._log.segments_from(first_offset):
            header = segment.translate_offset(first_offset)
            segment.close()
            return header is not None and (header.base_offset, header.producer_id) == (first_offset, producer_id)
        return False

    def _snapshot(self, offset: int) -> list[ProducerEntry] | None:
        if offset not in self._snapshots:
            path = self._log.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)
            try:
                self._snapshots[offset] = read_snapshot(path)
            except CorruptSnapshotError as error:
                self._log.notices.note(path, f"{error.message}: the snapshot before it is used")
                self._snapshots[offset] = None
            except SegmentChangedError:
                self._snapshots[offset] = None  # Kafka removes snapshots regularly; an older snapshot serves as well.
        return self._snapshots[offset]

    def _replay(self, state: ProducerState, end_offset: int, max_batches: int = MAX_OFFSET) -> ProducerState:
        """Advance a state to `end_offset` by the segments' batches, including batches below the log start.

        Gives up after `max_batches`, leaving `map_end_offset` unchanged.
        """
        if state.map_end_offset >= end_offset:
            return state
        start, batches = state.map_end_offset, 0
        for segment in self._log.segments_from(start):
            if segment.base_offset >= end_offset:
                break
            for header in segment.headers(segment.floor_position(start)):
                if header.last_offset < start:
                    continue
                if header.base_offset >= end_offset:
                    # Do not stop at the end: no checksum covers an offset, and only the next batch shows that an offset is wrong.
                    continue
                batches += 1
                if batches > max_batches:
                    segment.close()
                    return state
                is_marker = header.is_control and header.producer_id >= 0
                state.apply(header, segment.end_txn_marker(header) if is_marker else None)
            segment.close()
        state.map_end_offset = end_offset
        return state
