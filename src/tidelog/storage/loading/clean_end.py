"""Where a log ends that was closed: a few bytes tell, of the last segment's index and log (spec §4.6, §6.3).

Kafka takes such a segment as it is. Here it must end with a whole batch: a preallocated log, or one that was copied while it was
written to, may bear the mark of a clean end as well, and what is appended after half a batch is lost.

A start asks this for each partition, so files are read here by their names, without the objects that would look after them.
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
    """The offset after a segment's last batch, and that batch, None where there is none."""

    offset: int
    newest: BatchHeader | None


def find_clean_end(segment: LogSegment) -> CleanEnd | None:
    """Return where a segment ends; None if it does not end with a whole batch.

    The offset index's last entry says where to begin; None as well where that is not a batch that it can mean. Checksums are not
    looked at. Raises StorageError.
    """
    size = segment.size_bytes
    if size == 0:
        return CleanEnd(segment.base_offset, None)
    try:
        position = _floor_position(segment, INT64_MAX)
        last = None if position is None else deque(segment.batches(position), maxlen=1)
    except CorruptBatchError:
        return None
    finally:
        segment.log.release()
    return CleanEnd(last[0].next_offset, last[0]) if last and last[0].end_position == size else None


def last_batch(segment: LogSegment) -> BatchHeader | None:
    """Return the last whole batch of a segment, None without one. Raises CorruptBatchError, StorageError."""
    try:
        last = deque(batches_from(segment, INT64_MAX), maxlen=1)
    except CorruptBatchError:  # Of the log, or of where the entry leads.
        last = deque(segment.batches(), maxlen=1)
    return last[0] if last else None


def batches_from(segment: LogSegment, offset: int) -> Iterator[BatchHeader]:
    """Yield the headers from a place on before which every offset is below `offset`: by the index, or the segment's start.

    Raises CorruptBatchError, StorageError.
    """
    return segment.batches(_floor_position(segment, offset) or 0)


def _floor_position(segment: LogSegment, offset: int) -> int | None:
    """Return where the batch of the last index entry at or below `offset` begins; 0 without one, None if the log contradicts it.

    Such a batch is there, and the headers from the entry before on lead to it. Raises StorageError.
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
    # That the batch ends at the entry's offset is not asked, releases differ.
    return position if header is not None and (header.magic < 2 or header.base_offset <= entry.offset) else None


def _floor_entries(segment: LogSegment, offset: int) -> tuple[OffsetPosition, OffsetPosition]:
    """Return the last two entries at or below `offset` of a segment's offset index; (base, 0) for each that there is not.

    Raises StorageError.
    """
    path = str(segment.log.path).removesuffix(names.LOG_SUFFIX) + names.INDEX_SUFFIX
    base = segment.base_offset
    none = OffsetPosition(base, 0)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # An index of a live one's length ends in zeros: they count as beyond any offset.
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
            raw = os.pread(fd, _ENTRY.size * min(2, low), _ENTRY.size * max(0, low - 2))
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
