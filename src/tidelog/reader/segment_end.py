"""Where the last segment ends: after its last whole batch with a right checksum.

======================================  =================================================================================
what stands after a whole batch        is
======================================  =================================================================================
nothing                                 the end
zeros to the end of the file            the end (a preallocated file; nothing was lost)
a batch with a right checksum, whose    CorruptBatchError: no crash writes that
offset does not fit
bytes that are no whole, sound batch    the end, with a notice (an append that a crash tore) unless the file is growing
the same, but a sound batch follows     CorruptBatchError: records were damaged, and others come after them
======================================  =================================================================================

A "sound batch" that follows has a right checksum and an offset that fits, so that a torn batch which carries another
log's bytes in its value is not taken for damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import check_crc_by_pieces, walk
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header

WINDOW_BYTES = 4 * 1024 * 1024


class SegmentEnd(NamedTuple):
    """The byte after the last whole batch, the offset that comes next, and that batch's header (None of an empty segment)."""

    position: int
    next_offset: int
    last_header: BatchHeader | None


def find_end(file: ReadOnlyFile, size_bytes: int, position: int, min_offset: int, notices: Notices) -> SegmentEnd:
    """Walk from `position`, where a batch starts or the segment is empty, to the end; checksums are checked.

    Raises CorruptBatchError where a damaged batch is followed by a sound one.
    """
    last: BatchHeader | None = None
    try:
        for header in walk(file, position, size_bytes, crc=True, min_offset=min_offset):
            last = header
            position = header.end_position
    except CorruptBatchError as error:
        if _checksum_is_right(file, position, size_bytes):
            raise
        next_offset = min_offset if last is None else last.next_offset
        last_byte = last_nonzero(file, position, size_bytes)
        if last_byte is not None:
            follower = _sound_batch(file, position + 1, last_byte + 1, size_bytes, next_offset)
            if follower is not None:
                raise CorruptBatchError(
                    f"{error.message}, and a sound batch follows at byte {follower.position}",
                    path=file.path,
                    position=position,
                    found=error.found,
                    expected=error.expected,
                ) from error
            if file.size_bytes() == size_bytes:  # Else the owner is in the middle of an append.
                torn = f"{size_bytes - position} bytes after byte {position}"
                notices.note(file.path, f"torn tail: {torn} are no whole batch, left out")
    return SegmentEnd(position, min_offset if last is None else last.next_offset, last)


def last_nonzero(file: ReadOnlyFile, start: int, end: int) -> int | None:
    """Return the position of the last byte in [start, end) that is not zero."""
    while end > start:
        window_start = max(start, end - WINDOW_BYTES)
        window = file.read(window_start, end - window_start)
        if window != bytes(len(window)):  # Compared at once: a preallocated file may hold gigabytes of zeros.
            return window_start + len(window.rstrip(b"\0")) - 1
        end = window_start
    return None


def _checksum_is_right(file: ReadOnlyFile, position: int, size_bytes: int) -> bool:
    """Say whether a whole batch with a right checksum stands at `position`."""
    try:
        header = read_header(file.read(position, HEADER_BYTES), 0, position, file.path)
        if header.end_position > size_bytes:
            return False
        check_crc_by_pieces(file, header)
    except CorruptBatchError:
        return False
    return True


def _sound_batch(file: ReadOnlyFile, start: int, stop: int, size_bytes: int, next_offset: int) -> BatchHeader | None:
    """Return the first sound batch that starts in [start, stop) and whose offset may follow."""
    for position in candidates(file, start, stop, size_bytes, next_offset):
        try:
            header = read_header(file.read(position, HEADER_BYTES), 0, position, file.path)
            if header.end_position > size_bytes or not next_offset <= header.base_offset <= next_offset + MAX_RELATIVE_OFFSET:
                continue
            check_crc_by_pieces(file, header)
        except CorruptBatchError:
            continue
        return header
    return None


def candidates(file: ReadOnlyFile, start: int, stop: int, size_bytes: int, next_offset: int) -> Iterator[int]:
    """Yield positions in [start, stop) whose bytes may be a header: a near offset, a length of none of 0..13, a known magic."""
    high = next_offset >> 32
    highs = b"|".join(re.escape(value.to_bytes(4, "big")) for value in (high, high + 1))
    pattern = re.compile(rb"(?=(?:%b).{4}(?!\0\0\0[\0-\x0d])[\0-\x7f].{7}[\0-\x02])" % highs, re.DOTALL)
    while start < stop:
        window_stop = min(stop, start + WINDOW_BYTES)
        window = file.read(start, min(window_stop + HEADER_BYTES, size_bytes) - start)
        for match in pattern.finditer(window):
            if start + match.start() < window_stop:
                yield start + match.start()
        start = window_stop
