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
    entry = floor_entry(segment)
    if not 0 <= entry.position < size:
        return None
    last = None
    try:
        for header in segment.batches(entry.position):
            if last is None and entry.position and not _may_mean(entry, header):
                return None
            last = header
    except CorruptBatchError:
        return None
    finally:
        segment.log.release()
    return CleanEnd(last.next_offset, last) if last is not None and last.end_position == size else None


def last_batch(segment: LogSegment) -> BatchHeader | None:
    """Return the last whole batch of a segment, None without one. Raises CorruptBatchError, StorageError."""
    try:
        last = deque(batches_from(segment, floor_entry(segment)), maxlen=1)
    except CorruptBatchError:  # Of the log, or of where the entry leads.
        last = deque(segment.batches(), maxlen=1)
    return last[0] if last else None


def batches_from(segment: LogSegment, entry: OffsetPosition) -> Iterator[BatchHeader]:
    """Yield the headers from an index entry on, or from the segment's start where the entry means no batch."""
    if 0 < entry.position < segment.size_bytes:
        headers = segment.batches(entry.position)
        try:
            first = next(headers, None)
        except CorruptBatchError:
            first = None
        if first is not None and _may_mean(entry, first):
            yield first
            yield from headers
            return
    yield from segment.batches()


def floor_entry(segment: LogSegment, offset: int = INT64_MAX) -> OffsetPosition:
    """Return the last entry at or below `offset` of a segment's offset index; (base, 0) without one. Raises StorageError."""
    path = str(segment.log.path).removesuffix(names.LOG_SUFFIX) + names.INDEX_SUFFIX
    base = segment.base_offset
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # An index of a live one's length ends in zeros: they count as beyond any offset.
            low, high = 0, os.fstat(fd).st_size // _ENTRY.size
            found = OffsetPosition(base, 0)
            middle = high - 1
            while low < high:
                raw = os.pread(fd, _ENTRY.size, middle * _ENTRY.size)
                relative, position = _ENTRY.unpack(raw) if len(raw) == _ENTRY.size else (0, 0)
                if raw != _NO_ENTRY and base + relative <= offset:
                    low, found = middle + 1, OffsetPosition(base + relative, position)
                else:
                    high = middle
                middle = (low + high) // 2
        finally:
            os.close(fd)
    except FileNotFoundError:
        return OffsetPosition(base, 0)
    except OSError as error:
        raise StorageError(f"cannot read an index: {error.strerror}", path=path) from error
    return found


def _may_mean(entry: OffsetPosition, header: BatchHeader) -> bool:
    """Whether an index entry can be about the batch at its position; that it ends there is not asked, releases differ."""
    return header.magic < 2 or header.base_offset <= entry.offset
