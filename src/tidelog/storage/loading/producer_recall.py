"""State of producers that snapshots lack: the batches before the last one, which a producer may repeat after a crash.

A snapshot holds the last batch of each producer; an append knows repetitions of the last five, as many as a producer may have
on their way. After a crash producers repeat what was not acknowledged to them. Kafka 3.9.1, which then knows one batch of each,
takes an older one for a gap in the sequence; the producer starts over under another epoch, and writes it a second time. So the
end of the log, which recovery has just read, is walked once more. Called by `loader`, after a crash only: before a clean end
every request was answered.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator

from tidelog.errors import CorruptBatchError
from tidelog.storage.producers.producer_state_entry import BATCHES_KEPT, BatchMetadata
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments

logger = logging.getLogger("tidelog.storage")

RECALLED_BYTES = 8 << 20
"""Of the log's end. A producer of Java's has 5 x 16 KiB on their way by default, librdkafka's 5 x 1 MB."""


def recall_batches(state: ProducerStateManager, segments: LogSegments) -> None:
    """Fill up what a state at the log's end knows of its producers' batches. Raises StorageError.

    Below the recovery point nothing was checked. Where a batch is damaged there, the log is served as it is, as in Kafka.
    """
    wanted = {producer_id: entry for producer_id, entry in state.active_producers.items() if len(entry.batches) == 1}
    if not wanted:
        return
    found: dict[int, deque[BatchMetadata]] = defaultdict(lambda: deque(maxlen=BATCHES_KEPT))
    for segment, position in _end_of(segments):
        try:
            for header in segment.log.batches(position):
                entry = wanted.get(header.producer_id)
                if entry is not None and header.producer_epoch == entry.producer_epoch and not header.is_control:
                    offset_delta = header.last_offset - header.base_offset
                    batch = BatchMetadata(header.last_sequence, header.last_offset, offset_delta, header.max_timestamp)
                    found[header.producer_id].append(batch)
        except CorruptBatchError as error:
            logger.warning("%s: duplicates of producers' batches before it are not recognized", error)
            found.clear()  # Batches of this segment that were not seen may lie between those and what follows.
        segment.close_idle()
    for producer_id, batches in found.items():
        if batches[-1] == wanted[producer_id].batches[-1]:
            state.recall(producer_id, tuple(batches))


def _end_of(segments: LogSegments) -> Iterator[tuple[LogSegment, int]]:
    """The last two segments, each with the position of a batch from which on they are `RECALLED_BYTES`, if there is so much."""
    left = RECALLED_BYTES
    ends = []
    for segment in reversed(list(segments)[-2:]):
        if left > 0:
            ends.append((segment, _batch_at(segment, segment.size_bytes - left)))
            left -= segment.size_bytes
    yield from reversed(ends)


def _batch_at(segment: LogSegment, position: int) -> int:
    """Return where the last batch begins that the index knows at or before a position; 0 if it knows none."""
    index = segment.offset_index
    slot = bisect_right(range(index.entries), position, key=lambda slot: index.entry(slot).position)
    return index.entry(slot - 1).position if slot else 0
