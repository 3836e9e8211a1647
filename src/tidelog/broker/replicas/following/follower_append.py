"""Applies a leader's response to a follower's log: batches as they arrive, then the high watermark, then the log start.

| | |
|---|---|
| records | appended as they come, in pieces of whole batches that fit a segment and a slice of the loop |
| high watermark | the smaller of the leader's and the own log end; never back to what a new leader knows: it is committed |
| log start | the leader's, up to the high watermark |
| an empty log, a batch from below its start | the log starts over there: the leader's start is within it (DeleteRecords) |

Kafka's ReplicaFetcherThread.processPartitionData and Partition.appendRecordsToFollowerOrFutureReplica; there, a follower's high
watermark goes back where a new leader knows less.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidelog.errors import UnexpectedAppendOffsetError
from tidelog.records.batch import LOG_OVERHEAD, MIN_HEADER_BYTES
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.messages.fetch import PartitionData

AT_ONCE_BYTES = 1 << 20
"""So much is appended in one go: about a millisecond's work."""

_LENGTH = Struct(">i")


def append_fetched(log: PartitionLog, data: PartitionData, leader_epoch: int) -> Iterator[None]:
    """Append an answer of the leader of `leader_epoch` to a log, a piece at each step. Raises what an append raises.

    Batches appended before an error stay: they are the leader's.
    """
    for piece in pieces(data.records, min(AT_ONCE_BYTES, log.config.segment_bytes)):
        end = log.log_end_offset
        try:
            log.append_as_follower(piece, leader_epoch)
        except UnexpectedAppendOffsetError as error:
            if end != log.log_start_offset or not 0 <= error.first_offset < end <= error.last_offset:
                raise
            log.truncate_fully_and_start_at(error.first_offset)
            log.append_as_follower(piece, leader_epoch)
        if log.log_end_offset == end:
            break  # Of a newer epoch than the one that is followed, as is all that comes after it.
        yield
    if data.high_watermark > log.high_watermark:
        log.update_high_watermark(data.high_watermark)
    start = min(data.log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.maybe_increment_log_start_offset(start)


def is_part_of_a_batch(records: memoryview | bytes) -> bool:
    """Whether records are less than one batch: before Fetch 3 (KIP-74) a leader sends no more than it is asked for."""
    if len(records) < MIN_HEADER_BYTES:
        return True
    (length,) = _LENGTH.unpack_from(records, 8)
    return LOG_OVERHEAD + int(length) > len(records)


def pieces(records: memoryview | bytes | None, most_bytes: int) -> Iterator[memoryview]:
    """Yield records in pieces of whole batches, of `most_bytes` at most where a single batch is not larger.

    Bytes of a partial batch at the end are left out. Bytes that are not a batch are left to the append, which reports the fault.
    """
    view = memoryview(records or b"")
    if len(view) <= most_bytes:
        if len(view):
            yield view
        return
    start = end = 0
    while len(view) - end >= MIN_HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(view, end + 8)
        after = end + LOG_OVERHEAD + max(length, 1)
        if after > len(view):
            break
        if after - start > most_bytes and end > start:
            yield view[start:end]
            start = end
        end = after
    if end > start:
        yield view[start:end]
