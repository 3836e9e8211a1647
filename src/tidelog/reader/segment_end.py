"""Determines the end of the last segment: after its last complete batch with a valid checksum.

======================================  =================================================================================
after a complete batch                  meaning
======================================  =================================================================================
nothing                                 the end
zeros to the end of the file            the end (a preallocated file; nothing was lost)
a batch with a valid checksum, whose    CorruptBatchError: no crash writes that
offset cannot follow
a part of a batch, up to the file's     the end, with a notice (an append that a crash tore) unless the file is growing
end; or a batch of which a block is zeros
any other unsound batch                 CorruptBatchError: no crash writes that
an unsound batch followed by a sound    CorruptBatchError: records were damaged, and others follow them
one
======================================  =================================================================================

A killed process leaves the beginning of what it wrote. A power failure leaves a shorter file, or some blocks in their state
before the append: zeros. So a batch that has its full size and no block of zeros was complete at some time, and is now damaged. A
batch also counts as damaged if its checksum becomes valid when one bit of its length is flipped, or when the batch is taken to
end with the file. Bytes that cannot be distinguished from a torn append are skipped. `missing` compares the resulting end with
the checkpoints.

A sound batch has a valid checksum and an offset that may follow the previous batch. So a torn batch with another log's bytes in
its value is not mistaken for damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.batch_walk import CRC_START, check_crc_by_pieces, checksums_at, walk
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, MIN_HEADER_BYTES, MIN_LENGTH, BatchHeader, read_header

WINDOW_BYTES = 4 * 1024 * 1024

BLOCK_BYTES = 64
"""The smallest unit that storage writes atomically: a cache line, for files in persistent memory."""

_LENGTH = Struct(">i")
_MAGIC_AT = 16


class SegmentEnd(NamedTuple):
    """The position after the last complete batch, the offset after it, and the batch's header (None in an empty segment)."""

    position: int
    next_offset: int
    last_header: BatchHeader | None
    torn: TornTail | None = None


class TornTail(NamedTuple):
    """An incomplete append that a crash may have left after the last complete batch."""

    position: int
    end_position: int
    first_offset: int
    end_offset: int | None
    """The offset after the torn batch's last record, according to its header; None if the header is torn too."""

    def __str__(self) -> str:
        said = "" if self.end_offset is None else f", to {self.end_offset - 1} according to its header"
        return (
            f"torn tail: {self.end_position - self.position} bytes after byte {self.position} are not a complete batch, "
            f"and were skipped: offsets from {self.first_offset}{said}"
        )


def find_end(file: ReadOnlyFile, size_bytes: int, position: int, min_offset: int, notices: Notices) -> SegmentEnd:
    """Return the segment's end: walk the batches from `position`, verifying checksums. A batch must start at `position`, unless
    the segment is empty.

    Raises CorruptBatchError for a damaged batch that no crash explains, SegmentChangedError.
    """
    try:
        return _find_end(file, size_bytes, position, min_offset, notices)
    except SegmentChangedError:
        # At a roll the owner truncates the preallocated part, so the file then ends with its last batch.
        size_bytes = file.size_bytes()
        end = _find_end(file, size_bytes, position, min_offset, notices)
        if end.position != size_bytes:
            raise
        return end


def _find_end(file: ReadOnlyFile, size_bytes: int, position: int, min_offset: int, notices: Notices) -> SegmentEnd:
    last: BatchHeader | None = None
    torn: TornTail | None = None
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
                raise _damage(error, f"and a sound batch follows at byte {follower.position}", file, position) from error
            if file.size_bytes() == size_bytes:  # Otherwise the owner is in the middle of an append.
                if not may_be_torn(file, position, size_bytes, next_offset):
                    raise _damage(error, "and a crash does not leave such a batch at the end", file, position) from error
                torn = torn_tail(file, position, size_bytes, next_offset)
                notices.note(file.path, str(torn))
    return SegmentEnd(position, min_offset if last is None else last.next_offset, last, torn)


def _damage(error: CorruptBatchError, why: str, file: ReadOnlyFile, position: int) -> CorruptBatchError:
    text = f"{error.message}, {why}"
    return CorruptBatchError(text, path=file.path, position=position, found=error.found, expected=error.expected)


def torn_tail(file: ReadOnlyFile, position: int, size_bytes: int, next_offset: int) -> TornTail:
    """Return a description of the bytes after the last complete batch."""
    header = _header_at(file, position, size_bytes)
    fits = header is not None and next_offset <= header.base_offset <= header.last_offset <= next_offset + MAX_RELATIVE_OFFSET
    return TornTail(position, size_bytes, next_offset, header.next_offset if header is not None and fits else None)


def may_be_torn(file: ReadOnlyFile, position: int, size_bytes: int, next_offset: int) -> bool:
    """Return whether the bytes at and after `position`, which are not a sound batch, may be an append torn by a crash."""
    head = file.read(position, min(HEADER_BYTES, size_bytes - position))
    if len(head) < MIN_HEADER_BYTES:
        return True
    is_known_format = head[_MAGIC_AT] <= 2
    if is_known_format and _has_other_length(file, position, size_bytes, head):
        return False
    end_position = position + LOG_OVERHEAD + _LENGTH.unpack_from(head, 8)[0]
    if end_position > size_bytes:
        return is_known_format
    if end_position < position + LOG_OVERHEAD + MIN_LENGTH:
        end_position = size_bytes
    last_byte = last_nonzero(file, position, size_bytes)
    if last_byte is None or (last_byte + 1 < end_position < size_bytes):
        return True  # A preallocated file with the beginning of a batch.
    return _has_block_of_zeros(file, position, end_position, next_offset)


def _has_block_of_zeros(file: ReadOnlyFile, start: int, end: int, next_offset: int) -> bool:
    """Return whether [start, end) contains a block of zeros, not counting the leading zeros of an offset."""
    while start < end:
        window = file.read(start, min(WINDOW_BYTES, end - start))
        at = 0
        while at < len(window):
            stop = min(at + BLOCK_BYTES - (start + at) % BLOCK_BYTES, len(window))
            if not any(window[at:stop]) and window[at:stop] != next_offset.to_bytes(8, "big")[: stop - at]:
                return True
            at = stop
        start += len(window)
    return False


def last_nonzero(file: ReadOnlyFile, start: int, end: int) -> int | None:
    """Return the position of the last byte in [start, end) that is not zero."""
    while end > start:
        window_start = max(start, end - WINDOW_BYTES)
        window = file.read(window_start, end - window_start)
        if window != bytes(len(window)):  # Compare in large pieces, because a preallocated file may contain gigabytes of zeros.
            return window_start + len(window.rstrip(b"\0")) - 1
        end = window_start
    return None


def _header_at(file: ReadOnlyFile, position: int, size_bytes: int) -> BatchHeader | None:
    try:
        return read_header(file.read(position, min(HEADER_BYTES, size_bytes - position)), 0, position, file.path)
    except CorruptBatchError:
        return None


def _has_other_length(file: ReadOnlyFile, position: int, size_bytes: int, head: bytes) -> bool:
    """Return whether the checksum would be valid if the batch ended with the file, or if one bit of its length were different.

    In a preallocated file, a batch that ends with zeros looks like a shorter batch.
    """
    magic = head[_MAGIC_AT]
    first = position + MIN_HEADER_BYTES if magic < 2 else position + HEADER_BYTES
    if first > size_bytes:
        return False
    (length,), crc = _LENGTH.unpack_from(head, 8), int.from_bytes(head[CRC_START[magic] - 4 : CRC_START[magic]], "big")
    ends = {size_bytes, *(position + LOG_OVERHEAD + (length ^ 1 << bit) for bit in range(31))}
    return crc in checksums_at(file, position, magic, sorted(end for end in ends if first <= end <= size_bytes))


def _checksum_is_right(file: ReadOnlyFile, position: int, size_bytes: int) -> bool:
    """Return whether a complete batch with a valid checksum is at `position`."""
    header = _header_at(file, position, size_bytes)
    if header is None or header.end_position > size_bytes:
        return False
    try:
        check_crc_by_pieces(file, header)
    except CorruptBatchError:
        return False
    return True


def _sound_batch(file: ReadOnlyFile, start: int, stop: int, size_bytes: int, next_offset: int) -> BatchHeader | None:
    """Return the first sound batch that starts in [start, stop) and whose offset may follow the last complete batch."""
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
    """Yield the positions in [start, stop) at which a header may begin: an offset near `next_offset`, a length above 13, a known
    magic.
    """
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
