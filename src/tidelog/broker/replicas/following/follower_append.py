"""Applies a leader's response to a follower's log: first the batches, in order, then the high watermark, then the log start.

| | |
|---|---|
| records | appended as received, in pieces of whole batches that fit into a segment and a slice of the loop |
| high watermark | the leader's, but at most the log end here; it never decreases, even if a new leader's is lower |
| log start | the smaller of the leader's log start and the high watermark here |
| a batch for an empty log, from below its start | the log restarts at the batch, which contains the leader's log start |

See Kafka's ReplicaFetcherThread.processPartitionData and Partition.appendRecordsToFollowerOrFutureReplica. In Kafka a follower's
high watermark can decrease under a new leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidelog.errors import UnexpectedAppendOffsetError
from tidelog.records.batch import LOG_OVERHEAD, MIN_HEADER_BYTES
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.messages.fetch import PartitionData

AT_ONCE_BYTES = 1 << 20
"""How many bytes are appended in one step: about a millisecond of work."""

_LENGTH = Struct(">i")


def append_fetched(log: PartitionLog, data: PartitionData, leader_epoch: int) -> Iterator[None]:
    """Append the records of a response to a log, one piece per step. `leader_epoch` is the leader's epoch. Raises what an
    append raises.

    Batches that were appended before an error stay in the log, because they are the leader's.
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
            break  # This batch and all later ones have an epoch newer than `leader_epoch`.
        yield
    if data.high_watermark > log.high_watermark:
        log.update_high_watermark(data.high_watermark)
    start = min(data.log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.maybe_increment_log_start_offset(start)


def is_part_of_a_batch(records: memoryview | bytes) -> bool:
    """Whether the records are an incomplete first batch. Before Fetch 3 (KIP-74) a leader never sends more bytes than
    requested, so it cuts off a larger batch.
    """
    if len(records) < MIN_HEADER_BYTES:
        return True
    (length,) = _LENGTH.unpack_from(records, 8)
    return LOG_OVERHEAD + int(length) > len(records)


def pieces(records: memoryview | bytes | None, most_bytes: int) -> Iterator[memoryview]:
    """Yield records in pieces of whole batches, of at most `most_bytes` unless a single batch is larger.

    A partial batch at the end is left out. Bytes that are not a batch are yielded, too, so that the append reports the error.
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
