"""Segments with offset overflow: offsets that do not fit in an int32 relative to the segment's base offset, and how such segments
are split (spec §6.6, KAFKA-6264).

Kafka before 2.1 could write them, by compacting several segments into one. Recovery and the cleaner split such a segment when
they find it, then restart their own work::

    [5 ......... 5 + 2^31 ..]   →   [5 .........] [5 + 2^31 ..]

Each new segment begins at the first batch that would overflow the previous one. The new segments are written beside the old
segment, closed, synced, and put in its place by `segment_replacement`: a crash leaves either the old segment or all new ones.
Aborted transactions move with their markers. Bytes after the last whole batch stay at the end of the last new segment: recovery
decides whether they are damaged.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import CorruptBatchError, CorruptIndexError, InvalidArgumentError, InvalidOffsetError, OffsetOverflowError
from tidelog.formats import names
from tidelog.records.batch import BatchHeader
from tidelog.records.records import first_offset
from tidelog.storage.partition.segment_replacement import replace_segments
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_file import LogFile, delete_file
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments

logger = logging.getLogger("tidelog.storage")

COPY_BYTES = 1024 * 1024
"""How many bytes `append_from_file` copies at a time. A larger batch is copied alone."""


class SplitResult(NamedTuple):
    """The `new` segments in ascending order, and the `removed` segments whose base offset no new segment has."""

    new: list[LogSegment]
    removed: list[LogSegment]


def split_overflowed_segment(
    segment: LogSegment,
    segments: LogSegments,
    directory: Path,
    config: LogConfig,
    clock: Clock,
    scheduler: Scheduler | None,
) -> SplitResult:
    """Replace `segment`, one of `segments`, with several segments without offset overflow. The caller removes the producer
    snapshots of `removed`.

    Raises InvalidArgumentError if the segment is not in place or has no such offset, OffsetOverflowError for a batch that does
    not fit in any segment, StorageError. After an error only ``.cleaned`` files are left behind.
    """
    path = segment.log.path
    if path.name != names.file_name(segment.base_offset, names.LOG_SUFFIX):
        raise InvalidArgumentError("a segment can be split only while it is part of its log", path=path)
    logger.warning("%s has offsets that do not fit in an int32 relative to its base offset: splitting it", path)
    new: list[LogSegment] = []
    try:
        _copy(segment, new, directory, config, clock)
        _hand_on_aborted_txns(segment, new)
        modified_ms = segment.last_modified_ms
        for part in new:
            part.on_become_inactive()
            part.flush()
            part.set_last_modified(modified_ms)
            part.close_idle()
    except BaseException:
        for part in new:
            part.close_handlers()
        raise
    removed = replace_segments(segments, new, [segment], directory, scheduler, config.file_delete_delay_ms)
    segment.close_handlers()
    logger.warning("%s was split into segments with base offsets %s", path, ", ".join(str(part.base_offset) for part in new))
    return SplitResult(new, removed)


def _copy(segment: LogSegment, new: list[LogSegment], directory: Path, config: LogConfig, clock: Clock) -> None:
    """Copy the batches into as many segments as necessary. Each is added to `new` when it is created."""
    log, position = segment.log, 0
    header = log.first_batch()
    while header is not None:
        part = _open_cleaned(directory, first_offset(header, log.read_batch, log.path), config, clock)
        new.append(part)
        try:
            append_from_file(part, log, position)
        except (CorruptBatchError, InvalidOffsetError) as error:
            logger.warning("%s: stopped splitting at damaged bytes; recovery will handle the rest: %s", log.path, error)
            header = None
        if part.size_bytes == 0:
            raise OffsetOverflowError("a batch spans more offsets than fit in a segment", path=log.path, position=position)
        position += part.size_bytes
        if header is not None:
            header = _first_batch(log, position)
    if not new or (len(new) == 1 and new[0].base_offset == segment.base_offset):
        raise InvalidArgumentError("the segment has no offset overflow, so it cannot be split", path=log.path)
    if position < log.size_bytes:
        new[-1].log.append(log.read(position, log.size_bytes - position))


def _first_batch(log: LogFile, position: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None if there is no whole batch."""
    try:
        return log.first_batch(position)
    except CorruptBatchError:
        return None


def _open_cleaned(directory: Path, base_offset: int, config: LogConfig, clock: Clock) -> LogSegment:
    """Create a ``.cleaned`` segment, after removing the files of an earlier attempt."""
    for suffix in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
        delete_file(directory / (names.file_name(base_offset, suffix) + names.CLEANED_SUFFIX))
    return LogSegment.open(directory, base_offset, config, clock, suffix=names.CLEANED_SUFFIX)


def _hand_on_aborted_txns(segment: LogSegment, new: list[LogSegment]) -> None:
    """Assign each aborted transaction to the segment with its marker. Kafka omits them until the next recovery."""
    try:
        aborted = segment.txn_index.aborted
    except CorruptIndexError as error:
        logger.warning("%s: the transaction index is not copied; recovery will rebuild it", error)
        return
    for txn in aborted:
        part = next((part for part in reversed(new) if part.base_offset <= txn.last_offset), None)
        if part is not None:
            part.txn_index.append(txn)


def append_from_file(segment: LogSegment, source: LogFile, start: int) -> int:
    """Copy whole batches from byte `start` of `source`, up to the first batch that would overflow the segment (§4.3).

    Returns the number of bytes copied. Raises what `append` raises, and CorruptBatchError after the batches before the damage
    have been copied.
    """
    copied = size = 0
    taken: list[BatchHeader] = []
    try:
        for header in source.batches(start):
            if not segment.can_convert_to_relative_offset(header.last_offset):
                break
            if taken and size + header.size > COPY_BYTES:
                copied += _append_batches(segment, source, taken, size)
                taken, size = [], 0
            taken.append(header)
            size += header.size
    except CorruptBatchError:
        _append_batches(segment, source, taken, size)
        raise
    return copied + _append_batches(segment, source, taken, size)


def _append_batches(segment: LogSegment, source: LogFile, headers: list[BatchHeader], size: int) -> int:
    if headers:
        segment.append(headers[-1].last_offset, headers, source.read(headers[0].position, size))
    return size
