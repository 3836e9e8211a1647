"""Recovers one segment: its log is read from end to end, and all files beside it are rebuilt (spec §4.7).

| | |
|---|---|
| `.log` | truncated after the last valid batch |
| `.index`, `.timeindex` | the entries that appending the batches one by one would make, identical to Kafka's |
| `.txnindex` | the transactions aborted here, from the producer state |
| leader epochs | each epoch that is above the latest known epoch is added |
| producers | advanced from the segment's base to its end |

There are two differences from Kafka. A batch whose offset is not above the previous offsets ends the log, because no reader of
Tidelog reads past it. Kafka accepts such a batch, or discards the whole segment if the batch would get an index entry. And an
index that would exceed segment.index.bytes stays sparse at its end, where Kafka fails.

`loader` calls this after an unclean shutdown and for a segment without an index, with the producer state at the segment's base.
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
    """Rebuild a segment's files from its `.log`. Return the number of bytes truncated.

    `scanned` is an earlier walk over the unchanged segment (`scan_segment`). Raises OffsetOverflowError, before any change, if
    the segment must be split; StorageError.
    """
    if scanned is None:
        scanned = scan_segment(segment, progress)
    if scanned.overflows:
        raise OffsetOverflowError(
            f"an offset after {scanned.last_offset} does not fit in the segment with base offset {segment.base_offset}",
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
        logger.warning("%s: truncated at byte %d of %d: %s", segment.log.path, scanned.valid_bytes, segment.size_bytes, why)
    return segment.install_recovered(
        scanned.valid_bytes,
        scanned.offset_entries,
        scanned.time_entries,
        scanned.max_timestamp,
        scanned.offset_of_max_timestamp,
    )


def scan_segment(segment: LogSegment, progress: Progress | None = None) -> ScannedLog:
    """Walk an unchanged segment. This may be done on a different thread, ahead of the segment's recovery."""
    return scan_log(segment.log, segment.size_bytes, segment.base_offset, segment.index_interval_bytes, progress=progress)


def _update_producers(segment: LogSegment, producer_state: ProducerStateManager, scanned: ScannedLog) -> tuple[ScannedLog, str]:
    """Advance the producer state to the segment's end, and collect aborted transactions. Return the valid part of the log, and
    the fault that ends it.

    An unreadable marker is the last valid batch, as in Kafka.
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
