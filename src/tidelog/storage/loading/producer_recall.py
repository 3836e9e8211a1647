"""Restores producer state that snapshots lack: for each producer, the batches before its last batch. Producers may resend them
after a crash.

A snapshot has the last batch of each producer, but an append recognizes duplicates of the last five, the most that a producer may
have in flight. After a crash producers resend unacknowledged batches. Kafka 3.9.1 then knows only one batch of each producer, and
treats an older batch as a sequence gap. The producer starts over with a new epoch, and writes the batch a second time. To avoid
this, Tidelog walks the end of the log again, which recovery has just read. `loader` calls this only after a crash: before a clean
shutdown every request has been answered.
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
"""How many bytes at the end of the log are walked. A Java producer has 5 x 16 KiB in flight by default, librdkafka 5 x 1 MB."""


def recall_batches(state: ProducerStateManager, segments: LogSegments) -> None:
    """Add earlier batches of producers to the state at the log's end. Raises StorageError.

    Batches below the recovery point have not been checked. If one of them is damaged, the log is served nevertheless, as in
    Kafka.
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
    """Yield the last segments, at most two, each with the position from which to read, about `RECALLED_BYTES` before the end."""
    left = RECALLED_BYTES
    ends = []
    for segment in reversed(list(segments)[-2:]):
        if left > 0:
            ends.append((segment, _batch_at(segment, segment.size_bytes - left)))
            left -= segment.size_bytes
    yield from reversed(ends)


def _batch_at(segment: LogSegment, position: int) -> int:
    """Return the position of the last indexed batch at or before a position, or 0 if there is no such batch."""
    index = segment.offset_index
    slot = bisect_right(range(index.entries), position, key=lambda slot: index.entry(slot).position)
    return index.entry(slot - 1).position if slot else 0
