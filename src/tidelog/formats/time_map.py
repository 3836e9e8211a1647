"""The time map of a segment: the time bounds of the records in each of its blocks.

Kafka's time index bounds a search from one side only: "nothing up to here is later than T". For an exact range, both time bounds
of every region are needed. A time map has both bounds, for blocks of whole batches, each at least 64 KiB long (the last may be
shorter). A few late records stretch a block's bounds over hours in which the block has no other records. So the map also has the
block's holes, the widest intervals within its bounds that contain no record. Time maps are Tidelog's own files. They are derived
from the log and can be rebuilt at any time: `time_map_builder` builds them, `time_map_file` stores them.

All numbers are big-endian. First a header::

    offset  type    field
    0       8 B     "tidemap" and a zero byte
    8       int32   version, 2
    12      int32   block bytes: a block ends with the batch that brings it to that size
    16      int64   base offset of the segment
    24      int64   covered bytes: the end of the last block; the map does not describe the log after it
    32      int64   next offset: the offset after the last batch
    40      int64   offset field of the last batch
    48      uint32  CRC field of the last batch
    52      int32   number of blocks, at least 1
    56      int32   number of holes in all blocks
    60      uint64  inode of the log when it was read; this and the next three are its stamp (`file_stamp`)
    68      int64   its size
    76      int64   its modification time, ns
    84      int64   its change time, ns. All four are 0 if the log was still being written to

then columns, each with one number per block::

    int64   position of the block in the log; the first is 0
    int64   first offset in the block (read from inside the message if the first batch is a compressed v0 or v1 message)
    int64   smallest timestamp of the block's records, ms; 2^63-1 if no record has a timestamp
    int64   largest timestamp; -2^63 if no record has a timestamp
    int32   distance from the position to the block's last batch
    uint32  digest of the block's batches: CRC-32C over each one's base offset, size and CRC field
    int32   number of records, excluding control batches
    int32   number of records without timestamp, which do not affect the bounds
    int32   the number of holes up to and including this block

then two columns with one number per hole, ordered by block and ascending::

    int64   the last timestamp before the hole
    int64   the first timestamp after the hole

and a uint32 at the end, CRC-32C over everything before it. Version 1 had no stamp, and had the CRC field of a block's first batch
instead of the digest. Such maps do not show whether the log has changed since, so they are not used.

Invariants: timestamps are as a consumer sees them (the append time in LogAppendTime batches); control batches do not count; a
block has no record outside its bounds, and none in its holes. This module has no I/O: it maps values to bytes and back.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from struct import Struct

from tidelog.errors import CorruptIndexError
from tidelog.formats.file_stamp import UNKNOWN, FileStamp
from tidelog.records.batch import PathLike
from tidelog.records.kernel import MAX_INT64, MIN_INT64, crc32c

VERSION = 2

BLOCK_BYTES = 64 * 1024
"""The minimum size of a block, which makes a map without holes smaller than a thousandth of its segment."""

MAX_HOLES = 32
"""The maximum number of holes of a block, 16 bytes each. Most blocks have no holes, or one for each late record."""

HEADER = Struct(">8siiqqqqIiiQqqq")
_BEGINNING = Struct(">8si")
_CHECKSUM = Struct(">I")
_MAGIC = b"tidemap\0"
_BLOCK_COLUMNS, _HOLE_COLUMNS = "qqqqiIiii", "qq"
_BLOCK_BYTES, _HOLE_BYTES = (sum(array(code).itemsize for code in codes) for codes in (_BLOCK_COLUMNS, _HOLE_COLUMNS))


@dataclass(frozen=True, slots=True)
class TimeMap:
    """A segment's time map, complete and with a valid checksum. `time_map_file` checks whether it belongs to the segment.

    Maps with the same content are equal, even if they were read from different files.
    """

    block_bytes: int
    base_offset: int
    covered_bytes: int
    next_offset: int
    last_batch_offset: int
    last_batch_crc: int
    positions: array[int]
    first_offsets: array[int]
    min_timestamps: array[int]
    max_timestamps: array[int]
    last_batches: array[int]
    digests: array[int]
    records: array[int]
    without_timestamp: array[int]
    hole_ends: array[int]
    before_holes: array[int]
    behind_holes: array[int]
    stamp: FileStamp = field(default=UNKNOWN, compare=False, kw_only=True)

    @property
    def blocks(self) -> int:
        return len(self.positions)

    @property
    def last_batch_position(self) -> int:
        return self.positions[-1] + self.last_batches[-1]

    def end_position(self, block: int) -> int:
        """Return the position where a block ends."""
        return self.positions[block + 1] if block + 1 < self.blocks else self.covered_bytes

    def end_offset(self, block: int) -> int:
        """Return an offset that is above all of a block's offsets and at most the next block's first offset."""
        return self.first_offsets[block + 1] if block + 1 < self.blocks else self.next_offset

    def blocks_between(self, start_offset: int, end_offset: int) -> range:
        """Return the blocks that may hold offsets in `[start_offset, end_offset)`."""
        if start_offset >= self.next_offset:
            return range(0)
        first = max(0, bisect_right(self.first_offsets, start_offset) - 1)
        return range(first, max(first, bisect_left(self.first_offsets, end_offset)))

    def blocks_in_time(self, blocks: range, start_ms: int | None, end_ms: int | None) -> list[int]:
        """Return the elements of `blocks` that may have a timestamp in `[start_ms, end_ms)`; None means no bound."""
        lowest = MIN_INT64 if start_ms is None else start_ms
        highest = MAX_INT64 if end_ms is None else end_ms - 1
        smallest = self.min_timestamps[blocks.start : blocks.stop]
        largest = self.max_timestamps[blocks.start : blocks.stop]
        return [
            block
            for block, first, last in zip(blocks, smallest, largest, strict=True)
            if first <= highest and last >= lowest and first <= last and not self._is_in_hole(block, lowest, highest)
        ]

    def _is_in_hole(self, block: int, lowest: int, highest: int) -> bool:
        """Whether `lowest..highest` lies within one of the block's holes."""
        start = self.hole_ends[block - 1] if block else 0
        hole = bisect_left(self.before_holes, lowest, start, max(start, self.hole_ends[block])) - 1
        return hole >= start and self.behind_holes[hole] > highest

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        header = HEADER.pack(
            _MAGIC,
            VERSION,
            self.block_bytes,
            self.base_offset,
            self.covered_bytes,
            self.next_offset,
            self.last_batch_offset,
            self.last_batch_crc,
            self.blocks,
            len(self.before_holes),
            *self.stamp,
        )
        data = header + b"".join(_big_endian(column).tobytes() for column in self.columns())
        return data + _CHECKSUM.pack(crc32c(data))

    @classmethod
    def from_bytes(cls, data: bytes, path: PathLike = None) -> TimeMap:
        """Return the map in a file's content. Raises CorruptIndexError unless it is a whole map of the current version."""
        expected_bytes = size_bytes(data, path)
        if len(data) != expected_bytes:
            raise CorruptIndexError(
                "a time map has an invalid length", path=path, found=f"{len(data)} bytes", expected=expected_bytes
            )
        crc = crc32c(memoryview(data)[: -_CHECKSUM.size])
        (stated,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
        if crc != stated:
            raise CorruptIndexError(
                "a time map's checksum does not match", path=path, found=f"{crc:#010x}", expected=f"{stated:#010x}"
            )
        _, _, block_bytes, *fields = HEADER.unpack_from(data)
        *fields, blocks, holes, inode, size, modified_ns, changed_ns = fields
        columns = []
        position = HEADER.size
        for codes, count in ((_BLOCK_COLUMNS, blocks), (_HOLE_COLUMNS, holes)):
            for code in codes:
                column = array(code)
                column.frombytes(data[position : position + count * column.itemsize])
                position += count * column.itemsize
                columns.append(_big_endian(column))
        time_map = cls(block_bytes, *fields, *columns, stamp=FileStamp(inode, size, modified_ns, changed_ns))
        if time_map.hole_ends[-1] != holes:
            raise CorruptIndexError(
                "a time map's number of holes is wrong", path=path, found=holes, expected=time_map.hole_ends[-1]
            )
        return time_map

    def columns(self) -> tuple[array[int], ...]:
        """Return the columns in the order of the file."""
        return (
            self.positions,
            self.first_offsets,
            self.min_timestamps,
            self.max_timestamps,
            self.last_batches,
            self.digests,
            self.records,
            self.without_timestamp,
            self.hole_ends,
            self.before_holes,
            self.behind_holes,
        )


def size_bytes(header: bytes, path: PathLike = None) -> int:
    """Return the length of the file that begins with `header`. Raises CorruptIndexError if it is not a time map."""
    if len(header) < HEADER.size:
        raise CorruptIndexError("a time map is truncated", path=path, found=f"{len(header)} bytes")
    magic, version = _BEGINNING.unpack_from(header)
    if magic != _MAGIC:
        raise CorruptIndexError("the file is not a time map", path=path, found=magic)
    if version < VERSION:
        what = "the time map has an older format: run `tidelog index rebuild`"
        raise CorruptIndexError(what, path=path, found=f"version {version}", expected=VERSION)
    if version > VERSION:
        raise CorruptIndexError("the time map has an unknown version", path=path, found=version, expected=VERSION)
    *_, blocks, holes, _, _, _, _ = HEADER.unpack_from(header)
    if blocks < 1 or holes < 0:
        raise CorruptIndexError(
            "a time map's number of blocks or holes is invalid", path=path, found=f"{blocks} blocks, {holes} holes"
        )
    return HEADER.size + int(blocks) * _BLOCK_BYTES + int(holes) * _HOLE_BYTES + _CHECKSUM.size


def _big_endian(column: array[int]) -> array[int]:
    """Return a copy converted between the machine's byte order and the file's."""
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
