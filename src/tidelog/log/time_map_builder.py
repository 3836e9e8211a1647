"""A time map from a log: each batch is read once, its checksum verified, its records looked at where they tell the time.

| batch | its times come from |
|---|---|
| of control records | nothing: it is passed over |
| LogAppendTime, v2 | the header: every record has the append time |
| all others | the records; a header's largest time is not believed |

Plain v2 batches are mapped in the kernel, many with one call; compressed ones and those of old formats one by one.

A map that was built up to some position is built further from there: `grown_from`. What comes out is the same, byte for byte,
as if the segment had been mapped at once. Damage is an error, and there is no map then. `time_map_file` calls this; whoever
appends batches and knows their times may feed `TimeMapBuilder` directly.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.log.batch_walk import check_crc_by_pieces
from tidelog.log.files import ReadOnlyFile
from tidelog.log.time_map import BLOCK_BYTES, TimeMap
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, LOG_APPEND_TIME, MAX_OFFSET, NO_TIMESTAMP, BatchHeader, read_header
from tidelog.records.batch_kernel import FAULTS, SegmentScan
from tidelog.records.scanner import scan_batch

CHUNK_BYTES = 1024 * 1024
"""Bytes of one read: what fits the processor's cache is read, checked and parsed there."""

LARGE_BATCH_BYTES = 64 * 1024 * 1024
"""A batch that claims more is checked in pieces before it is read whole: damage must not cost memory."""

_BLOCKS_A_CALL = 256
_NO_INDEX_INTERVAL_BYTES = 2**62
_INT32_MAX = 2**31 - 1

# What the builder knows, as the kernel has it: twelve int64. The last eight are the block that is not finished yet.
_POSITION, _NEXT_OFFSET, _LAST_OFFSET, _LAST_CRC, _BLOCK, _FIRST_OFFSET, _MIN, _MAX, _LAST_BATCH, _CRC, _RECORDS, _WITHOUT = (
    range(12)
)
_ROW = 8
"""Numbers of a block, in the order of the map's columns. Position -1: there is no block yet."""


class BatchTimes(NamedTuple):
    """What a map wants to know of a batch: times in ms; without a time the smallest is 2^63-1 and the largest -2^63."""

    first_offset: int
    records: int
    without_timestamp: int
    min_timestamp: int
    max_timestamp: int


class TimeMapBuilder:
    """Collects the batches of one segment, in order, from its start or from where `grown_from` ends."""

    def __init__(self, base_offset: int, *, block_bytes: int = BLOCK_BYTES, grown_from: TimeMap | None = None) -> None:
        self.base_offset = base_offset
        self._block_bytes = block_bytes
        self._finished = array("q")
        self._room = array("q", bytes(8 * _ROW * _BLOCKS_A_CALL))
        self._state = array("q", [0, base_offset, 0, 0, -1, *[0] * (_ROW - 1)])
        if grown_from is not None:
            before = grown_from
            self._block_bytes = before.block_bytes
            self._state[:_BLOCK] = array(
                "q", [before.covered_bytes, before.next_offset, before.last_batch_offset, before.last_batch_crc]
            )
            self._finished = array("q", bytes(8 * _ROW * (before.blocks - 1)))
            for i, column in enumerate(before.columns()):
                self._finished[i::_ROW] = array("q", column[:-1])
                self._state[_BLOCK + i] = column[-1]

    @property
    def position(self) -> int:
        """Where the next batch stands in the log."""
        return self._state[_POSITION]

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch."""
        return self._state[_NEXT_OFFSET]

    def add(self, header: BatchHeader, times: BatchTimes) -> None:
        """Take the batch that stands at `position`. Raises CorruptBatchError for one whose offsets go back."""
        state = self._state
        position = state[_POSITION]
        if not state[_NEXT_OFFSET] <= times.first_offset <= header.last_offset < MAX_OFFSET:
            raise CorruptBatchError(
                "a batch's offset does not fit its place",
                position=header.position,
                found=times.first_offset,
                expected=f">= {state[_NEXT_OFFSET]}",
            )
        if state[_BLOCK] < 0 or position - state[_BLOCK] >= self._block_bytes:
            if state[_BLOCK] >= 0:
                self._finished += state[_BLOCK:]
            state[_BLOCK:] = array("q", [position, times.first_offset, kernel.MAX_INT64, kernel.MIN_INT64, 0, header.crc, 0, 0])
        if state[_RECORDS] + times.records > _INT32_MAX:
            raise CorruptBatchError("more records than a block can have", position=header.position, found=times.records)
        state[_LAST_BATCH] = position - state[_BLOCK]
        state[_RECORDS] += times.records
        state[_WITHOUT] += times.without_timestamp
        state[_MIN] = min(state[_MIN], times.min_timestamp)
        state[_MAX] = max(state[_MAX], times.max_timestamp)
        state[_LAST_OFFSET], state[_LAST_CRC] = header.base_offset, header.crc
        state[_POSITION], state[_NEXT_OFFSET] = position + header.size, header.next_offset

    def add_plain(self, data: memoryview, index: int, end: int) -> int:
        """Take the v2 batches of `data[index:end]`, sound and whole, that the kernel can; return where it stopped."""
        while True:
            stopped, finished = kernel.map_batches(data, index, end, self._block_bytes, self._state, self._room)
            self._finished += self._room[: finished * _ROW]
            if finished < _BLOCKS_A_CALL:
                return stopped
            index = stopped

    def build(self) -> TimeMap | None:
        """Return the map of what was added so far; None of nothing. The builder may go on afterwards."""
        if self._state[_BLOCK] < 0:
            return None
        rows = self._finished + self._state[_BLOCK:]
        columns = [rows[i::_ROW] for i in range(_ROW)]
        return TimeMap(
            block_bytes=self._block_bytes,
            base_offset=self.base_offset,
            covered_bytes=self._state[_POSITION],
            next_offset=self._state[_NEXT_OFFSET],
            last_batch_offset=self._state[_LAST_OFFSET],
            last_batch_crc=self._state[_LAST_CRC],
            positions=columns[0],
            first_offsets=columns[1],
            min_timestamps=columns[2],
            max_timestamps=columns[3],
            last_batches=array("i", columns[4]),
            crcs=array("I", columns[5]),
            records=array("i", columns[6]),
            without_timestamp=array("i", columns[7]),
        )


def add_batches(builder: TimeMapBuilder, file: ReadOnlyFile, end_position: int) -> None:
    """Read the batches from where the builder stands up to `end_position`, where one ends, and add them.

    May be called again with a later end, so that a long segment is mapped piece by piece. Raises CorruptBatchError,
    InvalidRecordError, DecompressionError for damage, SegmentChangedError for a file that became shorter, StorageError.
    """
    rows = kernel.Rows()
    rows.positions = False
    for chunk in _chunks(file, builder.base_offset, builder.position, end_position):
        start, index = builder.position, 0
        while index < len(chunk):
            index = builder.add_plain(chunk, index, len(chunk))
            if index < len(chunk):
                header = read_header(chunk, index, start + index, file.path)
                builder.add(header, _times(rows, header, chunk, index, file))
                index += header.size


def _times(rows: kernel.Rows, header: BatchHeader, chunk: memoryview, index: int, file: ReadOnlyFile) -> BatchTimes:
    first_offset, timestamp, count = header.base_offset, header.max_timestamp, header.record_count
    if header.is_control:
        return BatchTimes(first_offset, 0, 0, kernel.MAX_INT64, kernel.MIN_INT64)
    if header.magic == 2 and header.timestamp_type == LOG_APPEND_TIME and timestamp != NO_TIMESTAMP and count > 0:
        return BatchTimes(first_offset, count, 0, timestamp, timestamp)
    rows.clear()
    count, _ = scan_batch(rows, header, chunk, index, path=file.path)
    without_timestamp, smallest, largest = kernel.timestamp_bounds(rows, 0, count)
    if header.magic < 2 and count:
        first_offset = rows.column("offset")[0]
    return BatchTimes(first_offset, count, without_timestamp, smallest, largest)


def _chunks(file: ReadOnlyFile, base_offset: int, position: int, end_position: int) -> Iterator[memoryview]:
    """Yield the log from `position` on in pieces of whole batches whose checksums are right; each is good until the next."""
    scan = SegmentScan(base_offset, _NO_INDEX_INTERVAL_BYTES)
    buffer = bytearray(max(0, min(CHUNK_BYTES, end_position - position)))
    wanted = len(buffer)
    while position < end_position:
        wanted = min(wanted, end_position - position)
        if wanted > len(buffer):
            buffer = bytearray(wanted)
        chunk = memoryview(buffer)[:wanted]
        count = file.read_into(position, chunk)
        if count < wanted:
            raise SegmentChangedError(
                "a segment became shorter while it was read", path=file.path, position=position, found=f"{count} bytes"
            )
        sound = scan.scan(chunk, position)
        if scan.fault:
            raise CorruptBatchError(FAULTS[scan.fault], path=file.path, position=scan.fault_position)
        if sound:
            yield chunk[:sound]
        position += sound
        needed = scan.needed_bytes
        if needed > end_position - position or (sound < wanted and position - sound + wanted == end_position):
            raise CorruptBatchError("a batch is cut off by the end of its segment", path=file.path, position=position)
        if needed > LARGE_BATCH_BYTES:
            check_crc_by_pieces(file, read_header(file.read(position, HEADER_BYTES), 0, position, file.path))
        wanted = max(CHUNK_BYTES, needed)
