"""Segments whose names do not fit their batches: who goes by the names misses records (spec §1; `reader.segment.check_name`).

A segment is named by the offset that the log had come to when it began. So what lies before it ends there, or below:

| the first batch of a segment | what is asked |
|---|---|
| begins at its name | nothing more: a batch says where the one before it ended |
| begins above it, or there is none | where the segment before it ends |
| begins below it | nothing: the name is wrong, or the batch's offset |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidelog.errors import CorruptBatchError, CorruptDataError
from tidelog.records.batch import BatchHeader
from tidelog.records.records import first_offset
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments


def check_name(segments: LogSegments, segment: LogSegment) -> None:
    """Make sure that a segment's records begin at its name, and none before them. What was found right once is not asked again.

    Raises CorruptBatchError, StorageError. Damage in the segment before is left to those who read it.
    """
    if segment.is_name_checked:
        return
    first = _first_offset(segment)
    if first is not None and first < segment.base_offset:
        raise begins_below(segment, first)
    if first != segment.base_offset:
        before = _with_batches(segments, segment)
        end = None if before is None else _end_of(before)
        if before is not None and end is not None and end > segment.base_offset:
            raise unfit(segment, f"{before.log.path.name} reaches offset {end - 1}")
    segment.is_name_checked = True


def check_names_between(segments: LogSegments, offset: int, segment: LogSegment) -> None:
    """Do that for the segments from the one that should hold `offset` to the one that has the next batch."""
    one = segments.floor(offset)
    while one is not None and one.base_offset <= segment.base_offset:
        check_name(segments, one)
        one = segments.higher(one.base_offset)


def unfit(segment: LogSegment, found: str) -> CorruptBatchError:
    """Return the error for a segment whose name is above the end of what lies before it."""
    what = (
        "an empty segment's name does not fit the batches before it"
        if not segment.size_bytes
        else "a segment's name does not fit"
    )
    return CorruptBatchError(what, path=segment.log.path, found=found, expected=f"< {segment.base_offset}")


def begins_below(segment: LogSegment, first: int) -> CorruptBatchError:
    """Return the error for a segment whose first batch begins below its name."""
    what = "a segment's name does not fit its first batch"
    return CorruptBatchError(what, path=segment.log.path, found=f"offset {first}", expected=f">= {segment.base_offset}")


def are_in_place(segment: LogSegment, limit: int) -> bool:
    """Return whether the batches that reach `limit`, the name of the next segment, belong here nevertheless.

    A base offset in which a bit has flipped fits neither the batch before nor the one after.
    """
    next_offset = segment.base_offset
    headers: Iterator[BatchHeader] = segment.batches()
    for header in headers:
        if header.last_offset >= limit:
            after = next(headers, None)
            return begins_at(segment, header) == next_offset if after is None else after.base_offset > header.last_offset
        next_offset = header.next_offset
    return False


def begins_at(segment: LogSegment, header: BatchHeader) -> int | None:
    """Return the offset of a batch's first record; None if that cannot be read."""
    with contextlib.suppress(CorruptDataError):
        return first_offset(header, segment.log.read_batch, segment.log.path)
    return None


def _end_of(segment: LogSegment) -> int | None:
    with contextlib.suppress(CorruptBatchError):
        return segment.read_next_offset()
    return None


def _with_batches(segments: LogSegments, segment: LogSegment) -> LogSegment | None:
    """Return the last segment before another one that is not empty."""
    before = segments.lower(segment.base_offset)
    while before is not None and not before.size_bytes:
        before = segments.lower(before.base_offset)
    return before


def _first_offset(segment: LogSegment) -> int | None:
    """Return the offset of a segment's first record; None if it is empty, or that cannot be read without decompression."""
    with contextlib.suppress(CorruptBatchError):
        header = segment.log.first_batch(0) if segment.size_bytes else None
        if header is not None and (header.magic >= 2 or not header.is_compressed or header.last_offset < segment.base_offset):
            return header.base_offset
    return None
