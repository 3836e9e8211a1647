"""A whole `.log` walked once: what of it is valid, its indexes, and what epochs and producers must know (spec §4.7).

The walk itself is a kernel's (`records.kernel.SegmentScan`, which has the rules); this hands it the file, chunk by chunk,
through one buffer. The buffer stays small, so that what the kernel of the operating system has copied is still in the
processor's cache when it is summed up. A batch larger than it makes it larger; one of a size that only damage explains is
summed up by pieces first.

Nothing is changed here. `recovery` does that with its own segments, `check` compares with anybody's files; both may let several
walks run at the same time, because the kernel releases the GIL and so does reading.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from tidelog.errors import CorruptBatchError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header

CHUNK_BYTES = 1024 * 1024
"""Read at a time."""

SUSPECT_BYTES = 64 * 1024 * 1024
"""A batch of more is summed up by pieces before room is made for it: its length may be damage."""

Progress = Callable[[int], object]
"""Hears how many more bytes were walked."""


Whole = Callable[[memoryview, int], object]
"""Hears of whole batches with right checksums: their bytes, good until it returns, and where they stand in the `.log`."""


class LogBytes(Protocol):
    """A file to walk: `LogFile` of the storage, `ReadOnlyFile` of anybody's folder."""

    path: Path

    def read(self, position: int, length: int) -> bytes: ...
    def read_into(self, position: int, buffer: memoryview) -> int: ...


class ScannedLog(NamedTuple):
    """One walk's result. Offsets are absolute, positions bytes in the `.log`, timestamps ms; -1 stands for none."""

    base_offset: int
    size_bytes: int
    """How much there was to walk."""
    valid_bytes: int
    """Where the valid batches end; the rest is a torn tail, or begins with `fault`."""
    batches: int
    last_offset: int
    """Of the last valid batch; one below the base without one."""
    max_timestamp: int
    offset_of_max_timestamp: int
    """The last offset of the batch that first had it."""
    first_batch_timestamp: int
    """The first batch's largest timestamp."""
    last_append_time: int
    """Largest timestamp of the last batch that bears the broker's time (LogAppendTime)."""
    offset_entries: bytes
    """The `.index`."""
    time_entries: bytes
    """The `.timeindex`, its last entry included."""
    epochs: list[EpochEntry]
    """Each leader epoch above all before, and where it starts."""
    producer_positions: list[int]
    """Where the batches are that a producer state must know, in order."""
    fault: str
    """The fault of the batch at `valid_bytes`; empty if none is whole."""
    overflows: bool
    """Whether the fault is that the segment's base cannot express that batch's offset: then it must be split."""
    epoch_spans: list[tuple[int, int, int]] | None
    """(epoch, first offset, first offset of its last batch) of each of `epochs`; None if a batch has a lower one."""
    first_gap: tuple[int, int] | None
    """The first offsets [start, end) that no batch has between two of the segment's batches of v2."""

    @property
    def next_offset(self) -> int:
        """The offset after the last valid batch."""
        return self.last_offset + 1

    @property
    def is_whole(self) -> bool:
        """Whether everything is valid."""
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
    """Walk the first `size_bytes` of a segment's `.log`; `whole` gets the batches that are valid, as they are read.

    Raises what `file` raises for a disk that refuses or a file that became shorter.
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
    """Hand the file to `scan` until it is through; return the fault that ended it, if one did."""
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
            # The buffer begins with a batch that it does not hold, or the file ends with a part of one.
            if count < size or not size < scan.needed_bytes <= size_bytes - position:
                break
            if scan.needed_bytes > SUSPECT_BYTES and not _is_sound(file, position):
                return kernel.BATCH_FAULTS[kernel.BATCH_CHECKSUM]
            buffer = memoryview(bytearray(scan.needed_bytes))
    return ""


def _is_sound(file: LogBytes, position: int) -> bool:
    """Say whether a batch has the checksum that it states, holding a piece of it at a time."""
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
