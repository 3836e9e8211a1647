"""``.snapshot`` files: the state of every producer at an offset (spec §9.1; KIP-98).

========  =======  ==================================================================
 0        int16    version, 1
 2        uint32   CRC-32C of everything from byte 6 on
 6        int32    number of entries
10        entries  46 bytes each, in any order:
          int64    producer id
          int16    producer epoch
          int32    last sequence, -1 without a batch
          int64    last offset, -1 without a batch
          int32    last offset minus first offset of the last batch
          int64    timestamp of the last batch, ms
          int32    epoch of the transaction's coordinator, -1 before the first marker
          int64    first offset of the open transaction, -1 if none is open
========  =======  ==================================================================

The file's name is the next offset. If a snapshot is damaged, the loader uses the one with the next lower offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptSnapshotError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.records.kernel import crc32c

VERSION = 1
_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
HEADER_BYTES = _HEADER.size
pack_entry = _ENTRY.pack
"""Returns an entry's bytes from the fields of a `ProducerEntry`."""
ENTRY_BYTES = _ENTRY.size


class ProducerEntry(NamedTuple):
    """A producer's state; -1 means that a field has no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def parse_snapshot(data: bytes, path: FilePath | None = None) -> list[ProducerEntry]:
    """Return the entries in a snapshot's bytes. Raises CorruptSnapshotError for a wrong length, version or checksum."""
    if len(data) < HEADER_BYTES:
        raise CorruptSnapshotError(
            "a snapshot is truncated", path=path, found=f"{len(data)} bytes", expected=f">= {HEADER_BYTES}"
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError("a snapshot has an unknown version", path=path, position=0, found=version, expected=VERSION)
    actual = crc32c(memoryview(data)[_CRC_START:])
    if crc != actual:
        raise CorruptSnapshotError(
            "a snapshot's checksum does not match", path=path, position=2, found=f"{crc:#010x}", expected=f"{actual:#010x}"
        )
    if count < 0 or len(data) != HEADER_BYTES + count * ENTRY_BYTES:
        raise CorruptSnapshotError("a snapshot's number of entries does not fit its length", path=path, position=6, found=count)
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[HEADER_BYTES:])]


def build_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a snapshot. Without entries these are ten bytes, as in Kafka."""
    return join_snapshot([pack_entry(*entry) for entry in entries])


def join_snapshot(packed: Sequence[bytes]) -> bytes:
    """Return the bytes of a snapshot with entries that `pack_entry` has encoded."""
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def read_snapshot(path: FilePath) -> list[ProducerEntry]:
    """Read a snapshot file. Raises CorruptSnapshotError, SegmentChangedError if the file no longer exists."""
    with ReadOnlyFile(path) as file:
        return parse_snapshot(file.read(0, file.size_bytes()), path)
