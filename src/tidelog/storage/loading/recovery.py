"""Recovery of one segment: its log is read from end to end, and everything beside it is built from that (spec §4.7).

| | |
|---|---|
| `.log` | cut after the last valid batch |
| `.index`, `.timeindex` | the entries that appending the batches one by one makes; they are identical to Kafka's |
| `.txnindex` | the transactions that were aborted here, from the producers' state |
| leader epochs | each one that is above the latest known |
| producers | brought from the segment's base to its end |

Two differences from Kafka. A batch whose offset does not lie above the offsets before it ends the log: Kafka lets it pass, or
throws the whole segment away if an index entry would fall upon it, and no reader of this project would go past it. And an index
that would take more than segment.index.bytes is left sparse at its end, where Kafka fails.

Called by `loader`, after an unclean end and for a segment without an index; the caller sees to it that the producers' state
stands at the segment's base.
"""

from __future__ import annotations

import logging

from tidelog.errors import CorruptDataError, OffsetOverflowError
from tidelog.records.markers import end_txn_marker
from tidelog.storage.loading.log_scan import Progress, ScannedLog, read_producer_batch, scan_log
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


def recover_segment(
    segment: LogSegment,
    producer_state: ProducerStateManager,
    leader_epochs: LeaderEpochCache | None = None,
    *,
    progress: Progress | None = None,
    scanned: ScannedLog | None = None,
) -> int:
    """Rebuild a segment from its `.log`; return how many bytes were cut from that.

    `scanned` is a walk over the segment as it is (`scan_segment`), where the caller has had one made ahead. Raises
    OffsetOverflowError before anything is changed if the segment must be split, StorageError.
    """
    if scanned is None:
        scanned = scan_segment(segment, progress)
    if scanned.overflows:
        raise OffsetOverflowError(
            f"an offset after {scanned.last_offset} does not fit the segment of base {segment.base_offset}",
            path=segment.log.path,
            position=scanned.valid_bytes,
        )
    segment.reset_for_recovery()
    scanned, fault = _update_producers(segment, producer_state, scanned)
    if leader_epochs is not None:
        latest = leader_epochs.latest
        leader_epochs.assign_all(entry for entry in scanned.epochs if latest is None or entry.epoch > latest.epoch)
    if scanned.valid_bytes < segment.size_bytes:
        why = fault or "no whole batch follows"
        logger.warning("%s: cut at byte %d of %d: %s", segment.log.path, scanned.valid_bytes, segment.size_bytes, why)
    return segment.install_recovered(
        scanned.valid_bytes,
        scanned.offset_entries,
        scanned.time_entries,
        scanned.max_timestamp,
        scanned.offset_of_max_timestamp,
    )


def scan_segment(segment: LogSegment, progress: Progress | None = None) -> ScannedLog:
    """Walk a segment as it is; also ahead of its recovery, on another thread."""
    return scan_log(segment.log, segment.size_bytes, segment.base_offset, segment.index_interval_bytes, progress=progress)


def _update_producers(segment: LogSegment, producer_state: ProducerStateManager, scanned: ScannedLog) -> tuple[ScannedLog, str]:
    """Bring the state to the segment's end, noting aborted transactions; return what is valid, and what ends it.

    A marker that cannot be read is the last valid batch, as in Kafka.
    """
    log = segment.log
    fault = scanned.fault
    for position in scanned.producer_positions:
        header, batch = read_producer_batch(log, position)
        marker = None
        if header.is_control:
            try:
                marker = end_txn_marker(header, batch, log.path)
            except CorruptDataError as error:
                scanned = scan_log(log, header.end_position, segment.base_offset, segment.index_interval_bytes)
                fault = error.message
                break
        completed = producer_state.replay(header, marker)
        if completed is not None:
            segment.update_txn_index(*completed)
    if scanned.batches:
        producer_state.map_end_offset = scanned.next_offset
    return scanned, fault
