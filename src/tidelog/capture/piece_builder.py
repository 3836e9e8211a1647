"""Collects batches of one segment, and builds a piece with indexes from them.

Index entries follow Kafka's rule for appends: one at the first batch after every `index.interval.bytes` (spec §2.4, §2.5). The
last entry of a piece's time index is the piece's largest timestamp, as when Kafka rolls a segment.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping

from tidelog.backup.layout import INDEX_INTERVAL_BYTES
from tidelog.backup.manifest import Piece, StoredFile
from tidelog.formats import names
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import BatchHeader

INDEXED_BYTES = 64 * 1024
"""Smaller pieces have no indexes, because one entry would cover them."""

PIECE_BYTES = 32 * 1024 * 1024
"""A piece is written once it has at least this many bytes."""
_MEMORY_BYTES = PIECE_BYTES + 2 * 1024 * 1024

_idle: list[mmap.mmap] = []
"""Memory of earlier pieces, which is reused because the system takes long to provide new memory. There are as many buffers as
pieces were built at the same time.
"""

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class PieceBuilder:
    """Builds the next piece of the segment with base offset `segment_base`. Before this piece the segment has
    `position` bytes, and its largest timestamp is `largest`.
    """

    def __init__(self, segment_base: int, position: int, largest: int) -> None:
        self.size_bytes = 0
        self.end_position = position
        """The size of the segment in bytes, including this piece."""
        self._segment_base = segment_base
        self._largest_before = largest
        self._largest, self._largest_offset = NO_TIMESTAMP, segment_base
        self._indexed_time = largest
        self._memory = _idle.pop() if _idle else _pages(_MEMORY_BYTES)
        self._first: BatchHeader | None = None
        self._last: BatchHeader | None = None
        self._since_entry = INDEX_INTERVAL_BYTES + 1 if position else 0
        self._offsets: list[bytes] = []
        self._times: list[bytes] = []
        self._aborted: list[bytes] = []

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Append a batch; its bytes are copied."""
        if self._first is None:
            self._first = header
        self._last = header
        if header.max_timestamp > self._largest:
            self._largest, self._largest_offset = header.max_timestamp, header.last_offset
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self._since_entry = 0
            self._offsets.append(_OFFSET_ENTRY.pack(header.last_offset - self._segment_base, self.end_position))
            self._add_time()
        self._since_entry += len(batch)
        end = self.size_bytes + len(batch)
        if end > len(self._memory):
            larger = _pages(2 * end)
            larger[: self.size_bytes] = memoryview(self._memory)[: self.size_bytes]
            self._memory = larger
        self._memory[self.size_bytes : end] = batch
        self.size_bytes = end
        self.end_position += len(batch)

    def add_aborted(self, transaction: AbortedTxn) -> None:
        """Add a transaction that was aborted by the last batch, which is its marker."""
        self._aborted.append(transaction.to_bytes())

    def keep_aborted(self, data: bytes) -> None:
        """Add the unchanged entries of a ``.txnindex``."""
        self._aborted.append(data)

    def finish(self) -> tuple[Piece, Mapping[str, bytes | memoryview]]:
        """Return the piece, and the bytes of its files by suffix, until `release`. At least one batch must have been added."""
        first, last = self._first, self._last
        assert first is not None and last is not None
        files: dict[str, bytes | memoryview] = {names.LOG_SUFFIX: memoryview(self._memory)[: self.size_bytes]}
        if self.size_bytes >= INDEXED_BYTES:
            self._add_time()
            files[names.INDEX_SUFFIX] = b"".join(self._offsets)
            files[names.TIME_INDEX_SUFFIX] = b"".join(self._times)
        if self._aborted:
            files[names.TXN_INDEX_SUFFIX] = b"".join(self._aborted)
        piece = Piece(
            base_offset=first.base_offset,
            first_end=first.next_offset,
            end_offset=last.next_offset,
            first_epoch=first.leader_epoch,
            last_epoch=last.leader_epoch,
            first_time=first.max_timestamp,
            last_time=last.max_timestamp,
            max_time=self._largest,
            max_time_offset=self._largest_offset,
            files={suffix: StoredFile.of(data) for suffix, data in files.items()},
        )
        return piece, files

    def release(self) -> None:
        """Make the memory available for the next piece. The files must no longer be used."""
        if len(self._memory) == _MEMORY_BYTES:
            _idle.append(self._memory)
        del self._memory

    def _add_time(self) -> None:
        if self._largest > self._indexed_time:
            self._times.append(_TIME_ENTRY.pack(self._largest, self._largest_offset - self._segment_base))
            self._indexed_time = self._largest


def _pages(size_bytes: int) -> mmap.mmap:
    """Return page-aligned memory, so that files can be written directly from it."""
    return mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
