"""Producer state from what is on the disk: the last snapshot, and the batches after it (spec §9.5).

| the log | what happens |
|---|---|
| stores format v0 or v1, which know no producers | empty snapshots, so that nothing is ever read for them |
| has no snapshot at all, and was closed cleanly | the same: Kafka before 0.11 wrote it |
| anything else | state of the last snapshot in (log start, log end], replayed to the log end |

Snapshots are left at the bases of the last two segments and at the log end, so that a truncation need not read everything.
Called by `loader`, for the whole log and before it recovers a segment, and by `PartitionLog` after a truncation.
"""

from __future__ import annotations

from tidelog.records.markers import end_txn_marker
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.segment import LogSegment
from tidelog.storage.segment.segments import LogSegments


def rebuild_producer_state(
    producer_state: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    *,
    magic: int,
    now_ms: int,
    had_clean_shutdown: bool = False,
) -> None:
    """Bring the state to `last_offset`, exclusive. `magic` is the message format that the log stores.

    Raises CorruptBatchError, InvalidRecordError for what is replayed, StorageError.
    """
    bases = [segment.base_offset for segment in segments][-2:]
    offsets_to_snapshot = {*bases, last_offset}
    if magic < 2 or (producer_state.latest_snapshot_offset is None and had_clean_shutdown):
        for offset in [*bases, last_offset]:
            producer_state.map_end_offset = offset
            producer_state.take_snapshot()
        return
    nothing_to_lose = producer_state.is_empty and producer_state.map_end_offset >= last_offset
    producer_state.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producer_state.map_end_offset and not nothing_to_lose:
        for segment in segments.values(producer_state.map_end_offset, last_offset):
            start_offset = max(segment.base_offset, producer_state.map_end_offset, log_start_offset)
            producer_state.map_end_offset = start_offset
            if segment.base_offset in offsets_to_snapshot:
                producer_state.take_snapshot()
            _replay(producer_state, segment, start_offset, last_offset)
    producer_state.map_end_offset = last_offset
    producer_state.take_snapshot()


def _replay(producer_state: ProducerStateManager, segment: LogSegment, start_offset: int, last_offset: int) -> None:
    """Report the state of the batches in [start_offset, last_offset) of a segment."""
    start = segment.translate_offset(start_offset)
    if start is None:
        return
    log = segment.log
    for header in log.batches(start.position):
        if (header.base_offset if header.magic == 2 else header.last_offset) >= last_offset:
            break
        if header.has_producer_id:
            marker = end_txn_marker(header, log.read_batch(header), log.path) if header.is_control else None
            producer_state.replay(header, marker)
