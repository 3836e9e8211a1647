"""Finds the aborted transactions of a segment, and checks its transaction index against them (spec §2.1).

The required entries come from the producer state, replayed over the log. Transactions span segments, so a partition is walked in
order with one `ProducerState`, which starts from the snapshot at the first segment's base, or empty (`state_at`). The index may
also have entries for removed records: compaction has left only the transaction's marker, or the transaction began before the log
start. An entry's last stable offset may be lower than expected because of removed transactions of other producers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidelog.check.finding import Finding
from tidelog.check.index_files import IndexContent
from tidelog.errors import CorruptDataError, CorruptSnapshotError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.formats.txn_index import ENTRY_BYTES, AbortedTxn
from tidelog.reader.producer_state import ProducerState
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.markers import end_txn_marker
from tidelog.storage.loading.log_scan import ScannedLog, read_producer_batch

logger = logging.getLogger("tidelog.storage")


def check_txn_index(
    path: FilePath,
    content: IndexContent | None,
    aborted: Sequence[AbortedTxn],
    log: ReadOnlyFile,
    markers: Sequence[int],
    has_lost_records: Callable[[], bool],
) -> list[Finding]:
    """Compare a transaction index (None: it does not exist) with the aborted transactions in the log.

    `markers` are the positions of batches that may be markers, in order; `has_lost_records` returns whether compaction or
    retention removed records from the partition. Raises StorageError.
    """
    if content is None:
        if not aborted:
            return []
        return [
            Finding(path, f"the file is missing, although {len(aborted)} transactions were aborted", expected=_show(aborted[0]))
        ]
    findings = []
    expected = {txn.last_offset: txn for txn in aborted}
    seen: set[int] = set()
    before = -1
    data = content.data + bytes(content.padding_bytes)
    for slot in range(len(data) // ENTRY_BYTES):
        place = slot, slot * ENTRY_BYTES
        try:
            entry = AbortedTxn.from_bytes(data[place[1] : place[1] + ENTRY_BYTES])
        except CorruptDataError as error:
            findings.append(Finding(path, error.message, *place, f"{error.found}", f"{error.expected}"))
            continue
        txn = expected.get(entry.last_offset)
        what = _fault(entry, txn, before, log, markers)
        if what is None and txn is not None and entry != txn and not has_lost_records():
            # The transaction began earlier than the log shows: correct only if records were removed.
            what = "the transaction differs from the log"
        if what is not None:
            findings.append(Finding(path, what, *place, _show(entry), None if txn is None else _show(txn)))
        else:
            seen.add(entry.last_offset)
            before = entry.last_offset
    wrong = {finding.expected for finding in findings}
    for offset, txn in expected.items():
        if offset not in seen and _show(txn) not in wrong:
            findings.append(Finding(path, "an aborted transaction is missing", expected=_show(txn)))
    if content.ragged_bytes:
        findings.append(
            Finding(
                path, f"the length is not a multiple of the entry size: {content.ragged_bytes} bytes too many", position=len(data)
            )
        )
    return findings


def _fault(entry: AbortedTxn, txn: AbortedTxn | None, before: int, log: ReadOnlyFile, markers: Sequence[int]) -> str | None:
    """Return the fault of an entry, None if it may be correct."""
    if entry.last_offset <= before:
        return "the entry is out of order"
    if entry == txn:
        return None
    if txn is None:
        if _abort_marker_of(entry, log, markers):
            return None
        return "no abort marker is there"
    if txn.producer_id != entry.producer_id:
        return "the transaction belongs to a different producer"
    if not 0 <= entry.first_offset <= txn.first_offset:
        return "the transaction's first offset differs"
    if not 0 <= entry.last_stable_offset <= txn.last_stable_offset:
        return "the last stable offset differs"
    return None


def _abort_marker_of(entry: AbortedTxn, log: ReadOnlyFile, markers: Sequence[int]) -> bool:
    for position in markers:
        header = _header(log, position)
        if header.base_offset == entry.last_offset:
            if not header.is_control or header.producer_id != entry.producer_id:
                return False
            try:
                marker = end_txn_marker(header, log.read(position, header.size), log.path)
            except CorruptDataError:
                return False
            # Compaction may also have emptied the marker's batch.
            return marker is None or marker.type is ControlType.ABORT
    return False


def has_gaps(log: ReadOnlyFile, base_offset: int) -> bool:
    """Whether records were removed from the segment at `base_offset`, for example by compaction. Raises StorageError."""
    position, next_offset, size = 0, base_offset, log.size_bytes()
    while position + HEADER_BYTES <= size:
        try:
            header = _header(log, position)
        except CorruptDataError:
            break
        if header.base_offset != next_offset or 0 <= header.record_count <= header.last_offset - header.base_offset:
            return True
        position, next_offset = header.end_position, header.next_offset
    return False


def _header(log: ReadOnlyFile, position: int) -> BatchHeader:
    return read_header(log.read(position, HEADER_BYTES), 0, position, log.path)


def _show(txn: AbortedTxn) -> str:
    stable = f"last stable offset {txn.last_stable_offset}"
    return f"producer {txn.producer_id}, offsets {txn.first_offset} to {txn.last_offset}, {stable}"


# --- which transactions were aborted


def state_at(log_path: FilePath) -> ProducerState:
    """Return the producer state in the snapshot at a segment's base offset; empty if there is none, or if it is damaged."""
    base_offset = names.offset_from_file_name(log_path.name)
    path = log_path.with_suffix(names.SNAPSHOT_SUFFIX)
    try:
        return ProducerState(read_snapshot(path), base_offset)
    except SegmentChangedError:
        pass  # There is no snapshot: there were no producers, or the log begins here.
    except CorruptSnapshotError as error:
        logger.warning("%s: transactions that were open at offset %d will seem to have begun later", error, base_offset)
    return ProducerState(map_end_offset=base_offset)


class ProducerBatch(NamedTuple):
    """A batch that may open or end a transaction."""

    header: BatchHeader
    marker: EndTxnMarker | None


def transaction_batches(file: ReadOnlyFile, scanned: ScannedLog) -> list[ProducerBatch]:
    """Return the segment's batches that determine the aborted transactions, in order. Few of these batches are large.

    Other batches of producers are left out, because they open and end no transaction.
    """
    found = []
    for position in scanned.producer_positions:
        header, batch = read_producer_batch(file, position)
        marker = None
        if header.is_control:
            try:
                marker = end_txn_marker(header, batch, file.path)
            except CorruptDataError as error:
                logger.warning("%s: this transaction marker is ignored", error)
        if header.is_control or header.is_transactional:
            found.append(ProducerBatch(header, marker))
    return found


def aborted_by(batches: Iterable[ProducerBatch], state: ProducerState) -> list[AbortedTxn]:
    """Apply a segment's batches to the state. Return the transactions that were aborted in the segment."""
    before = len(state.aborted)
    for header, marker in batches:
        state.apply(header, marker)
    return state.aborted[before:]
