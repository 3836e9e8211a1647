"""Where a log ends that was closed: a few bytes tell, of the last segment's index and log (spec §4.6, §6.3).

Kafka takes such a segment as it is. Here it must end with a whole batch: a preallocated log, or one that was copied while it was
written to, may bear the mark of a clean end as well, and what is appended after half a batch is lost.

A start asks this for each partition, so files are read here by their names, without the objects that would look after them.
"""

from __future__ import annotations

import os
from struct import Struct

from tidelog.errors import CorruptBatchError, StorageError
from tidelog.formats import names
from tidelog.formats.offset_index import OffsetPosition
from tidelog.records.batch import BatchHeader
from tidelog.storage.segment.log_segment import LogSegment

_ENTRY = Struct(">ii")
_NO_ENTRY = bytes(_ENTRY.size)


def find_clean_end(segment: LogSegment) -> int | None:
    """Return the offset after the last batch of a segment; None if it does not end with a whole batch.

    The offset index's last entry says where to begin; None as well where that is no batch that it can mean. Checksums are not
    looked at. Raises StorageError.
    """
    size = segment.size_bytes
    if size == 0:
        return segment.base_offset
    entry = _last_entry(segment)
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
    return last.next_offset if last is not None and last.end_position == size else None


def _last_entry(segment: LogSegment) -> OffsetPosition:
    """Return the last entry of a segment's offset index; (base, 0) without one."""
    path = str(segment.log.path).removesuffix(names.LOG_SUFFIX) + names.INDEX_SUFFIX
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            entries = os.fstat(fd).st_size // _ENTRY.size
            raw = os.pread(fd, _ENTRY.size, (entries - 1) * _ENTRY.size) if entries else b""
        finally:
            os.close(fd)
    except FileNotFoundError:
        raw = b""
    except OSError as error:
        raise StorageError(f"cannot read an index: {error.strerror}", path=path) from error
    if raw == _NO_ENTRY:
        return segment.offset_index.last_entry  # It has the length of a live one: the entries end before its zeros.
    if len(raw) < _ENTRY.size:
        return OffsetPosition(segment.base_offset, 0)
    relative, position = _ENTRY.unpack(raw)
    return OffsetPosition(segment.base_offset + relative, position)


def _may_mean(entry: OffsetPosition, header: BatchHeader) -> bool:
    """Whether an index entry can be about the batch at its position; that it ends there is not asked, releases differ."""
    return header.magic < 2 or header.base_offset <= entry.offset
