"""Walks a whole `.log` once, and finds its valid part, its index entries, and the facts about epochs and producers (spec §4.7).

A kernel does the walk (`records.kernel.SegmentScan`, which has the rules). This module passes the file to the kernel in chunks,
through one buffer. The buffer is small, so that its bytes are still in the processor's cache when the checksum is computed. A
larger batch enlarges the buffer; if its size looks like damage, its checksum is first computed in chunks.

A walk changes nothing. `recovery` uses the result to change segments, `check` compares it with the files of any folder. Both may
run several walks at the same time, because the kernel and the reads release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.errors import CorruptBatchError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.paths.file_path import FilePath
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header

CHUNK_BYTES = 1024 * 1024
"""The number of bytes read at a time."""

SUSPECT_BYTES = 64 * 1024 * 1024
"""A batch larger than this is checked in chunks before the buffer grows, because its length may be damaged."""

Progress = Callable[[int], object]
"""Called with the number of further bytes that were walked."""


Whole = Callable[[memoryview, int], object]
"""Called with the bytes of complete, verified batches, and their position in the `.log`. The bytes are valid until the call
returns.
"""


class LogBytes(Protocol):
    """A file to walk: `LogFile` in storage, `ReadOnlyFile` in any folder."""

    @property
    def path(self) -> FilePath: ...
    def read(self, position: int, length: int) -> bytes: ...
    def read_into(self, position: int, buffer: memoryview) -> int: ...


class ScannedLog(NamedTuple):
    """The result of a walk. Offsets are absolute, positions are bytes in the `.log`, timestamps ms; -1 means none."""

    base_offset: int
    size_bytes: int
    """The number of bytes to walk."""
    valid_bytes: int
    """The end of the valid batches; the rest is a torn tail, or begins with `fault`."""
    batches: int
    last_offset: int
    """The last offset of the last valid batch, or the base offset minus one if there is no valid batch."""
    max_timestamp: int
    offset_of_max_timestamp: int
    """The last offset of the first batch with the largest timestamp."""
    first_batch_timestamp: int
    """The first batch's largest timestamp."""
    last_append_time: int
    """The largest timestamp of the last LogAppendTime batch."""
    offset_entries: bytes
    """The entries of the `.index`."""
    time_entries: bytes
    """The entries of the `.timeindex`, including the last one."""
    epochs: list[EpochEntry]
    """Each leader epoch that is above all earlier epochs, and its start offset."""
    producer_positions: list[int]
    """Positions of the batches that matter to a producer state, in order."""
    fault: str
    """The fault of the batch at `valid_bytes`; empty if no whole batch follows."""
    overflows: bool
    """Whether the fault is offset overflow, so that the segment must be split."""
    epoch_spans: list[tuple[int, int, int]] | None
    """(epoch, first offset, first offset of the epoch's last batch) of each of `epochs`; None if epochs decrease."""
    first_gap: tuple[int, int] | None
    """The first offsets [start, end) missing between two v2 batches of the segment."""

    @property
    def next_offset(self) -> int:
        """The offset after the last valid batch."""
        return self.last_offset + 1

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are valid batches."""
        return self.valid_bytes == self.size_bytes


def scan_log(
    file: LogBytes,
    size_bytes: int,
    base_offset: int,
    index_interval_bytes: int,
    *,
    progress: Progress | None = None,
    whole: Whole | None = None,
) -> ScannedLog:
    """Walk the first `size_bytes` of a segment's `.log`. `whole` is called with the valid batches as they are read.

    Raises what `file` raises for a disk error, or for a file that was truncated while it was being read.
    """
    scan = kernel.SegmentScan(base_offset, index_interval_bytes)
    fault = _walk(scan, file, size_bytes, progress, whole)
    scan.finish()
    return ScannedLog(
        base_offset=base_offset,
        size_bytes=size_bytes,
        valid_bytes=scan.valid_bytes,
        batches=scan.batches,
        last_offset=scan.last_offset,
        max_timestamp=scan.max_timestamp,
        offset_of_max_timestamp=scan.offset_of_max_timestamp,
        first_batch_timestamp=scan.first_max_timestamp,
        last_append_time=scan.last_append_time,
        offset_entries=scan.index_entries,
        time_entries=scan.time_entries,
        epochs=[EpochEntry(epoch, offset) for epoch, offset in scan.epochs],
        producer_positions=scan.producer_positions(),
        fault=fault,
        overflows=scan.fault == kernel.BATCH_OVERFLOW,
        epoch_spans=None if scan.lowers_epoch else scan.epoch_spans,
        first_gap=None if scan.gap_start < 0 else (scan.gap_start, scan.gap_end),
    )


def _walk(scan: kernel.SegmentScan, file: LogBytes, size_bytes: int, progress: Progress | None, whole: Whole | None) -> str:
    """Pass the file to `scan` until the walk is complete. Return the fault that ended the walk, or an empty text."""
    position = 0
    buffer = memoryview(bytearray(min(CHUNK_BYTES, size_bytes)))
    while position < size_bytes:
        size = min(len(buffer), size_bytes - position)
        count = file.read_into(position, buffer[:size])
        consumed = scan.scan(buffer[:count], position)
        if whole is not None:
            whole(buffer[:consumed], position)
        position += consumed
        if progress is not None:
            progress(consumed)
        if scan.fault:
            return kernel.BATCH_FAULTS[scan.fault]
        if consumed == 0:
            # The buffer is too small for its first batch, or the file ends with part of a batch.
            if count < size or not size < scan.needed_bytes <= size_bytes - position:
                break
            if scan.needed_bytes > SUSPECT_BYTES and not _is_sound(file, position):
                return kernel.BATCH_FAULTS[kernel.BATCH_CHECKSUM]
            buffer = memoryview(bytearray(scan.needed_bytes))
    return ""


def _is_sound(file: LogBytes, position: int) -> bool:
    """Whether the checksum of a batch matches its header. The batch is read in chunks."""
    try:
        header = read_header(file.read(position, HEADER_BYTES), 0, position)
    except CorruptBatchError:
        return False
    add = kernel.crc32c if header.magic == 2 else kernel.crc32
    crc = 0
    at = position + (21 if header.magic == 2 else 16)
    while at < header.end_position:
        piece = file.read(at, min(CHUNK_BYTES, header.end_position - at))
        if not piece:
            return False
        crc = add(piece, crc)
        at += len(piece)
    return crc == header.crc


def read_producer_batch(file: LogBytes, position: int) -> tuple[BatchHeader, bytes]:
    """Return the header of a valid batch at one of `producer_positions`, and its bytes if it is a control batch."""
    header = read_header(file.read(position, HEADER_BYTES), 0, position, file.path)
    return header, file.read(position, header.size) if header.is_control else b""
