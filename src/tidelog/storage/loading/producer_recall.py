"""Restores producer state that snapshots lack: the batches before the last one, which a producer may resend after a crash.

A snapshot has the last batch of each producer, but an append recognizes duplicates of the last five, the most that a producer may
have in flight. After a crash producers resend unacknowledged batches. Kafka 3.9.1 then knows one batch of each producer, and
takes an older one for a sequence gap; the producer starts over with another epoch and writes the batch a second time. So the end
of the log, which recovery has just read, is walked again. `loader` calls this after a crash only: before a clean shutdown every
request was answered.
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
"""How many bytes of the log's end are walked. A Java producer has 5 x 16 KiB in flight by default, librdkafka 5 x 1 MB."""


def recall_batches(state: ProducerStateManager, segments: LogSegments) -> None:
    """Add earlier batches of producers to the state at the log's end. Raises StorageError.

    Nothing was checked below the recovery point. If a batch is damaged there, the log is served nevertheless, as in Kafka.
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
            found.clear()  # Unread batches of this segment may lie between those found so far and later ones.
        segment.close_idle()
    for producer_id, batches in found.items():
        if batches[-1] == wanted[producer_id].batches[-1]:
            state.recall(producer_id, tuple(batches))


def _end_of(segments: LogSegments) -> Iterator[tuple[LogSegment, int]]:
    """Return the last two segments, each with the position of a batch from which on there are about `RECALLED_BYTES`."""
    left = RECALLED_BYTES
    ends = []
    for segment in reversed(list(segments)[-2:]):
        if left > 0:
            ends.append((segment, _batch_at(segment, segment.size_bytes - left)))
            left -= segment.size_bytes
    yield from reversed(ends)


def _batch_at(segment: LogSegment, position: int) -> int:
    """Return the position of the last indexed batch at or before a position; 0 if there is none."""
    index = segment.offset_index
    slot = bisect_right(range(index.entries), position, key=lambda slot: index.entry(slot).position)
    return index.entry(slot - 1).position if slot else 0
