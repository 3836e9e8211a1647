"""The summary of a partition's segments: the facts that a search needs about each segment, in one small file.

The file, ``segments.summary`` next to the segments, is Tidelog's own. `tidelog index rebuild` derives it from the segments, with
the time maps. `known_segments.py` decides when it is used.

All numbers are big-endian::

    offset  type    field
    0       8 B     "tidesegs"
    8       int32   version, 1
    12      int32   number of segments

then columns, each with one int64 per segment, ascending by base offset::

    base offset
    size of the log, which consists of whole batches
    offset of the first record; the base offset in an empty segment
    the offset after the last record
    largest timestamp of all batches, ms, including control batches; -1 if no batch has a timestamp
    last offset of the first batch with that timestamp
    smallest timestamp of the records, ms, excluding control records; 2^63-1 if no record has a timestamp
    number of records without timestamp
    position of the last batch; -1 in an empty segment
    CRC field of the last batch
    message format of the last batch; -1 in an empty segment

and a uint32 at the end, CRC-32C over everything before it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from tidelog.errors import CorruptIndexError
from tidelog.records.batch import PathLike
from tidelog.records.kernel import crc32c

VERSION = 1

_MAGIC = b"tidesegs"
_HEADER = Struct(">8sii")
_CHECKSUM = Struct(">I")


class SegmentFacts(NamedTuple):
    """One segment; the fields are the columns of the file."""

    base_offset: int
    size_bytes: int
    first_offset: int
    next_offset: int
    largest: int
    largest_offset: int
    smallest: int
    without_timestamp: int
    last_position: int
    """The position of the last batch; -1 also if it is unknown, as in a backup's manifests. Then the CRC is unknown, too."""
    last_crc: int
    last_magic: int


_COLUMNS = len(SegmentFacts._fields)


def encode_summary(segments: Iterable[SegmentFacts]) -> bytes:
    """Return the file's content."""
    rows = sorted(segments)
    columns = array("q", [value for column in zip(*rows, strict=True) for value in column])
    if sys.byteorder == "little":
        columns.byteswap()
    data = _HEADER.pack(_MAGIC, VERSION, len(rows)) + columns.tobytes()
    return data + _CHECKSUM.pack(crc32c(data))


def decode_summary(data: bytes, path: PathLike = None) -> list[SegmentFacts]:
    """Return the segments in a file's content. Raises CorruptIndexError unless it is a whole file of this version."""
    if len(data) < _HEADER.size:
        raise CorruptIndexError("a summary of segments is truncated", path=path, found=f"{len(data)} bytes")
    magic, version, count = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != VERSION:
        found = f"{magic!r}, version {version}"
        raise CorruptIndexError(
            "the file is not a summary of segments, or has an unknown version",
            path=path,
            found=found,
            expected=f"{_MAGIC!r}, version {VERSION}",
        )
    end = _HEADER.size + count * _COLUMNS * 8
    if count < 0 or len(data) != end + _CHECKSUM.size or _CHECKSUM.unpack_from(data, end)[0] != crc32c(memoryview(data)[:end]):
        raise CorruptIndexError("a summary of segments is damaged", path=path, found=f"{len(data)} bytes, {count} segments")
    values = array("q")
    values.frombytes(data[_HEADER.size : end])
    if sys.byteorder == "little":
        values.byteswap()
    columns = [values[number * count : (number + 1) * count] for number in range(_COLUMNS)]
    return [SegmentFacts(*row) for row in zip(*columns, strict=True)]
