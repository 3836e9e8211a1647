"""Producer state from disk: the last snapshot, and the batches after it (spec §9.5).

| the log | action |
|---|---|
| stores format v0 or v1, which has no producers | empty snapshots are written, so that batches need not be read |
| has no snapshot, was closed cleanly, ends with v0 or v1 | the same: Kafka before 0.11 wrote the log |
| the same, but ends with v2 | replayed from its start, with a warning: the snapshots are lost (see below) |
| anything else | the last snapshot in (log start, log end], replayed to the log end |

Without snapshots Kafka forgets the producers of a cleanly closed log, and read_committed consumers get uncommitted records.

Snapshots are kept at the base offsets of the last two segments and at the log end offset, so that a truncation need not read the
whole log. `loader` calls this module for the whole log and before it recovers a segment, and `PartitionLog` calls it after a
truncation. For a log in use, `state_at` computes the state at the truncation offset before the truncation, some batches at a
time.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

from tidelog.records.markers import end_txn_marker
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments

logger = logging.getLogger("tidelog.storage")

AT_ONCE = 64
"""The number of batches that are checked in one step."""


def rebuild_producer_state(
    producer_state: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    *,
    magic: int,
    now_ms: int,
    had_clean_shutdown: bool = False,
    known: ProducerStateManager | None = None,
) -> None:
    """Advance the state to `last_offset`, exclusive. `magic` is the message format that the log stores.

    `known` is the state at `last_offset`, if the caller has it; in this case nothing is read. Raises CorruptBatchError,
    InvalidRecordError for replayed batches, StorageError.
    """
    bases = [segment.base_offset for segment in segments][-2:]
    offsets_to_snapshot = {*bases, last_offset}
    if magic < 2 or (producer_state.latest_snapshot_offset is None and had_clean_shutdown and not _lacks_snapshots(segments)):
        for offset in [*bases, last_offset]:
            producer_state.map_end_offset = offset
            producer_state.take_snapshot()
        return
    nothing_to_lose = producer_state.is_empty and producer_state.map_end_offset >= last_offset
    if known is not None and known.map_end_offset == last_offset:
        producer_state.take_over(known, last_offset)
        return
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


def _lacks_snapshots(segments: LogSegments) -> bool:
    """Whether a log without snapshots must have had some: every writer of v2 batches writes a snapshot at a clean shutdown."""
    filled = [segment for segment in segments if segment.size_bytes]
    first = next(iter(filled[-1].batches()), None) if filled else None
    if first is None or first.magic < 2:
        return False
    logger.warning("%s: no producer snapshot is left: rebuilding the producer state from the log", filled[-1].log.path.parent)
    return True


def state_at(
    producer_state: ProducerStateManager, segments: LogSegments, log_start_offset: int, offset: int, now_ms: int
) -> Generator[None, None, ProducerStateManager | None]:
    """Return the state at an offset of the log, without changing anything. A step reads `AT_ONCE` batches.

    Returns None if the log has no producers now, because in this case it had none at that offset either. Raises what
    `rebuild_producer_state` raises.
    """
    if producer_state.is_empty and producer_state.map_end_offset >= offset:
        return None
    state = producer_state.as_of(log_start_offset, offset, now_ms)
    for segment in segments.values(state.map_end_offset, offset):
        state.map_end_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
        yield from _replaying(state, segment, state.map_end_offset, offset)
        yield
    state.map_end_offset = offset
    return state


def _replay(producer_state: ProducerStateManager, segment: LogSegment, start_offset: int, last_offset: int) -> None:
    for _ in _replaying(producer_state, segment, start_offset, last_offset):
        pass


def _replaying(
    producer_state: ProducerStateManager, segment: LogSegment, start_offset: int, last_offset: int
) -> Generator[None, None, None]:
    """Write a log line that the batches in [start_offset, last_offset) of a segment are being replayed."""
    start = segment.translate_offset(start_offset)
    if start is None:
        return
    log = segment.log
    for count, header in enumerate(log.batches(start.position)):
        if count % AT_ONCE == AT_ONCE - 1:
            yield
        if (header.base_offset if header.magic == 2 else header.last_offset) >= last_offset:
            break
        if header.has_producer_id:
            marker = end_txn_marker(header, log.read_batch(header), log.path) if header.is_control else None
            producer_state.replay(header, marker)
