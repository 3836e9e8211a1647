"""Detects segments whose names do not fit their batches: a reader that relies on the names would miss records (spec §1;
`reader.segment.check_name`).

A segment's name is the log end at the time when the segment began, so the previous segments end there, or below:

| the first batch of a segment | what is checked |
|---|---|
| begins at the segment's name | nothing more: the previous batch ended there |
| begins above it, or does not exist | where the previous segment ends |
| begins below it | nothing: the name or the batch's offset is wrong |
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
    """Ensure that a segment's records begin at its name. A name found correct is not checked again.

    Raises CorruptBatchError, StorageError. Damage in the previous segment is not reported here: its readers report it.
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
    """Check the names from the segment that should contain `offset` to `segment`, which has the next batch."""
    one = segments.floor(offset)
    while one is not None and one.base_offset <= segment.base_offset:
        check_name(segments, one)
        one = segments.higher(one.base_offset)


def unfit(segment: LogSegment, found: str) -> CorruptBatchError:
    """Return the error for a segment whose name is above the end of the previous records."""
    what = (
        "an empty segment's name does not fit the batches before it"
        if not segment.size_bytes
        else "a segment's name does not fit the batches before it"
    )
    return CorruptBatchError(what, path=segment.log.path, found=found, expected=f"< {segment.base_offset}")


def begins_below(segment: LogSegment, first: int) -> CorruptBatchError:
    """Return the error for a segment whose first batch begins below its name."""
    what = "a segment's name does not fit its first batch"
    return CorruptBatchError(what, path=segment.log.path, found=f"offset {first}", expected=f">= {segment.base_offset}")


def are_in_place(segment: LogSegment, limit: int) -> bool:
    """Whether the batches with offsets at or above `limit`, the name of the next segment, nevertheless belong to this segment.

    A base offset with a flipped bit fits neither the previous batch nor the next one.
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
    """Return the offset of a batch's first record, or None if the batch cannot be read."""
    with contextlib.suppress(CorruptDataError):
        return first_offset(header, segment.log.read_batch, segment.log.path)
    return None


def _end_of(segment: LogSegment) -> int | None:
    with contextlib.suppress(CorruptBatchError):
        return segment.read_next_offset()
    return None


def _with_batches(segments: LogSegments, segment: LogSegment) -> LogSegment | None:
    """Return the last non-empty segment before `segment`, or None."""
    before = segments.lower(segment.base_offset)
    while before is not None and not before.size_bytes:
        before = segments.lower(before.base_offset)
    return before


def _first_offset(segment: LogSegment) -> int | None:
    """Return the offset of a segment's first record. Return None if the segment is empty, or if decompression would be needed."""
    try:
        header = segment.log.first_batch(0) if segment.size_bytes else None
    except CorruptBatchError:
        return None
    if header is not None and (header.magic >= 2 or not header.is_compressed or header.last_offset < segment.base_offset):
        return header.base_offset
    return None
