"""Finds the end of a cleanly closed log from a few bytes of the last segment's index and log (spec §4.6, §6.3).

Kafka trusts such a segment. Tidelog checks that it ends with a whole batch. A preallocated log, or a log that was copied while it
was being written to, may end otherwise even though its folder has the clean-shutdown marker. Records appended after part of a
batch would be lost. Each start checks every partition, so for speed the files are read by name, without the usual objects.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.config import INT64_MAX
from tidelog.errors import CorruptBatchError, StorageError
from tidelog.formats import names
from tidelog.formats.batch_walk import iter_times
from tidelog.formats.offset_index import OffsetPosition
from tidelog.records.batch import BatchHeader
from tidelog.storage.segment.log_segment import LogSegment

_ENTRY = Struct(">ii")
_NO_ENTRY = bytes(_ENTRY.size)


class CleanEnd(NamedTuple):
    """The offset after a segment's last batch, and that batch, or None if the segment has no batch."""

    offset: int
    newest: BatchHeader | None


def find_clean_end(segment: LogSegment) -> CleanEnd | None:
    """Return the end of a segment, or None if the segment does not end with a whole batch.

    The search begins at the offset index's last entry. If no batch matches this entry, the result is None as well. Checksums
    are not checked. The log file stays open. Raises StorageError.
    """
    size = segment.size_bytes
    if size == 0:
        return CleanEnd(segment.base_offset, None)
    try:
        position = _floor_position(segment, INT64_MAX)
        last = segment.log.first_batch() if position == 0 else None
        if position is not None and (last is None or last.end_position != size):
            last = next(iter(deque(segment.batches(position), maxlen=1)), None)
    except CorruptBatchError:
        return None
    return CleanEnd(last.next_offset, last) if last is not None and last.end_position == size else None


def last_batch(segment: LogSegment) -> BatchHeader | None:
    """Return the last whole batch of a segment, or None if there is no whole batch. Raises CorruptBatchError, StorageError."""
    try:
        last = deque(batches_from(segment, INT64_MAX), maxlen=1)
    except CorruptBatchError:  # The log is damaged, or no batch is at the entry's position.
        last = deque(segment.batches(), maxlen=1)
    return last[0] if last else None


def batches_from(segment: LogSegment, offset: int) -> Iterator[BatchHeader]:
    """Yield headers, beginning at or before the batch with `offset`: at the position from the index, or at the segment's start.

    Raises CorruptBatchError, StorageError.
    """
    return segment.batches(_floor_position(segment, offset) or 0)


def _floor_position(segment: LogSegment, offset: int) -> int | None:
    """Return the position of the batch of the last index entry at or below `offset`: 0 if there is no such entry, None if the log
    contradicts the entry.

    The batch is checked, and so are the headers between it and the previous entry. Raises StorageError.
    """
    if offset < segment.base_offset:
        return 0
    before, entry = _floor_entries(segment, offset)
    position = entry.position
    if position == 0:
        return 0
    if not 0 <= before.position < position < segment.size_bytes:
        return None
    try:
        deque(iter_times(segment.log, before.position, position, segment.base_offset), maxlen=0)
        header = segment.log.first_batch(position)
    except CorruptBatchError:
        return None
    # The entry's offset need not be the batch's last offset: Kafka's releases differ.
    return position if header is not None and (header.magic < 2 or header.base_offset <= entry.offset) else None


def _floor_entries(segment: LogSegment, offset: int) -> tuple[OffsetPosition, OffsetPosition]:
    """Return the last two entries of a segment's offset index at or below `offset`. A missing entry is returned as (base offset,
    0).

    Raises StorageError.
    """
    path = segment.log.path_text.removesuffix(names.LOG_SUFFIX) + names.INDEX_SUFFIX
    base = segment.base_offset
    none = OffsetPosition(base, 0)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A preallocated index ends with zeros, which count as entries above any offset.
            low, high = 0, os.fstat(fd).st_size // _ENTRY.size
            middle = high - 1
            while low < high:
                raw = os.pread(fd, _ENTRY.size, middle * _ENTRY.size)
                relative, _ = _ENTRY.unpack(raw) if len(raw) == _ENTRY.size else (0, 0)
                if raw != _NO_ENTRY and base + relative <= offset:
                    low = middle + 1
                else:
                    high = middle
                middle = (low + high) // 2
            raw = os.pread(fd, _ENTRY.size * min(2, low), _ENTRY.size * max(0, low - 2)) if low else b""
        finally:
            os.close(fd)
    except FileNotFoundError:
        return none, none
    except OSError as error:
        raise StorageError(f"cannot read an index: {error.strerror}", path=path) from error
    whole = raw[: len(raw) // _ENTRY.size * _ENTRY.size]
    found = (OffsetPosition(base + relative, position) for relative, position in _ENTRY.iter_unpack(whole))
    before, entry = [none, none, *found][-2:]
    return before, entry
