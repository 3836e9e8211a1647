"""The transaction index: the aborted transactions whose ABORT marker lies in a segment (spec §2.1, §5.4; KIP-98).

=====  ======  ==================================================================================
 0     int16   version, 0
 2     int64   producer id
10     int64   first offset of the transaction
18     int64   last offset: that of the ABORT marker
26     int64   last stable offset when the marker was appended
=====  ======  ==================================================================================

Entries are appended without padding; their last offsets grow strictly. The file exists only if a transaction was aborted. It does
not suffice for read_committed: a transaction may still be open, or its ABORT marker may be in a later segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, InvalidArgumentError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction: its producer's transactional records in [first_offset, last_offset] are aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def to_bytes(self) -> bytes:
        """Return the entry's bytes in the file."""
        return _ENTRY.pack(VERSION, *self)

    @classmethod
    def from_bytes(cls, data: bytes) -> AbortedTxn:
        """Return the entry in `data`. Raises CorruptIndexError for a wrong length or version."""
        if len(data) != ENTRY_BYTES:
            raise CorruptIndexError(
                "an entry of a transaction index has the wrong size", found=f"{len(data)} bytes", expected=ENTRY_BYTES
            )
        version, *fields = _ENTRY.unpack(data)
        if version != VERSION:
            raise CorruptIndexError("an entry of a transaction index has an unknown version", found=version, expected=VERSION)
        return cls(*fields)


class CollectedTxns(NamedTuple):
    """The aborted transactions in one index for a fetch. `is_complete` is True if no later segment's index is needed."""

    aborted: list[AbortedTxn]
    is_complete: bool


class TxnIndex:
    """The aborted transactions of one segment, oldest first, in memory."""

    def __init__(self, base_offset: int, entries: Iterable[AbortedTxn] = (), path: FilePath | None = None) -> None:
        self.base_offset = base_offset
        self.path = path
        self.aborted: list[AbortedTxn] = list(entries)

    @classmethod
    def open(cls, path: FilePath | ReadOnlyFile, base_offset: int) -> TxnIndex:
        """Read a file. Raises CorruptIndexError for an invalid length, version or order, SegmentChangedError if the file
        no longer exists.
        """
        file = path if isinstance(path, ReadOnlyFile) else ReadOnlyFile(path)
        with file:
            data = file.read(0, file.size_bytes())
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(
                "a transaction index has an invalid length",
                path=file.path,
                found=f"{len(data)} bytes",
                expected=f"a multiple of {ENTRY_BYTES}",
            )
        index = cls(base_offset, path=file.path)
        for position in range(0, len(data), ENTRY_BYTES):
            try:
                index.append(AbortedTxn.from_bytes(data[position : position + ENTRY_BYTES]))
            except (CorruptIndexError, InvalidArgumentError) as error:
                raise CorruptIndexError(
                    error.message, path=file.path, position=position, found=error.found, expected=error.expected
                ) from None
        return index

    @property
    def last_offset(self) -> int | None:
        """The last marker's offset, None if the index is empty."""
        return self.aborted[-1].last_offset if self.aborted else None

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry. Raises InvalidArgumentError unless its last offset is above the previous entry's."""
        if self.aborted and txn.last_offset <= self.aborted[-1].last_offset:
            raise InvalidArgumentError(
                "a transaction index accepts only increasing offsets",
                path=self.path,
                found=txn.last_offset,
                expected=f"more than {self.aborted[-1].last_offset}",
            )
        self.aborted.append(txn)

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
        """Return the aborted transactions that a fetch of [fetch_offset, upper_bound_offset) needs, by Kafka's rule (§5.4)."""
        aborted = []
        for txn in self.aborted:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound_offset:
                aborted.append(txn)
            if txn.last_stable_offset >= upper_bound_offset:
                return CollectedTxns(aborted, True)
        return CollectedTxns(aborted, False)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose last offset is at or above `offset`."""
        self.aborted = [txn for txn in self.aborted if txn.last_offset < offset]

    def reset(self) -> None:
        """Remove every entry."""
        self.aborted = []

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if a marker's offset is below the segment's base offset (spec §2.7)."""
        for txn in self.aborted:
            if txn.last_offset < self.base_offset:
                raise CorruptIndexError(
                    "an aborted transaction ends below its segment's base offset",
                    path=self.path,
                    found=txn.last_offset,
                    expected=f">= {self.base_offset}",
                )

    def to_bytes(self) -> bytes:
        """Return the entries' bytes in the file."""
        return b"".join(txn.to_bytes() for txn in self.aborted)
