"""Builds a segment's time map: reads each batch once, verifies its checksum, and reads its records where they determine the
times.

| batch | its times come from |
|---|---|
| control batch | nothing: the batch is skipped |
| LogAppendTime, v2 | the header: every record has the append time |
| all others | the records; the header's largest timestamp is not trusted |

The kernel maps uncompressed v2 batches, many per call. Compressed batches and those of old formats are mapped one by one.

A map of part of a segment can be continued from its last block (`grown_from`). The result is byte for byte the map of the whole
segment. If a batch is damaged, an error is raised and no map is built. `time_map_file` uses this module.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.file_stamp import UNKNOWN, FileStamp
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.time_map import BLOCK_BYTES, MAX_HOLES, TimeMap
from tidelog.model import MAX_OFFSET, NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, PathLike, read_header
from tidelog.records.kernel import BATCH_FAULTS, SegmentScan, digest_batches
from tidelog.records.scanner import scan_batch

CHUNK_BYTES = 1024 * 1024
"""The number of bytes in one read. They stay in the processor's cache while they are read, checked and parsed."""

LARGE_BATCH_BYTES = 64 * 1024 * 1024
"""A batch that claims to be larger is checked in chunks before it is read whole, so that damage costs no memory."""

_FIRST_ROOM = 4096
_NO_INDEX_INTERVAL_BYTES = 2**62
_INT32_MAX = 2**31 - 1

# The builder's state as the kernel has it: eleven int64. Those from _BLOCK on describe the unfinished block:
# its position (-1 if there is none), its columns of the map, and how many of `times` are its timestamps.
_POSITION, _NEXT_OFFSET, _LAST_OFFSET, _LAST_CRC = range(4)
_BLOCK, _FIRST_OFFSET, _LAST_BATCH, _DIGEST, _RECORDS, _WITHOUT, _TIMES = range(4, 11)
_NO_BLOCK = array("q", [-1, 0, 0, 0, 0, 0, 0])
_BLOCK_FULL = 1


class TimeMapBuilder:
    """Processes the batches of one segment in order, from its start or from the start of the last block of `grown_from`."""

    def __init__(self, base_offset: int, *, block_bytes: int = BLOCK_BYTES, grown_from: TimeMap | None = None) -> None:
        self.base_offset = base_offset
        self._block_bytes = block_bytes
        self._state = array("q", [0, base_offset, 0, 0, *_NO_BLOCK])
        self._times = array("q", bytes(8 * _FIRST_ROOM))
        self._rows = kernel.Rows()
        self._rows.positions = False
        self._columns: tuple[array[int], ...] = tuple(array(code) for code in "qqqqiIiiiqq")
        if grown_from is not None:
            self._block_bytes = grown_from.block_bytes
            last = grown_from.blocks - 1
            holes = grown_from.hole_ends[last - 1] if last else 0
            kept = [last] * 9 + [holes] * 2
            self._columns = tuple(column[:count] for column, count in zip(grown_from.columns(), kept, strict=True))
            self._state[_POSITION], self._state[_NEXT_OFFSET] = grown_from.positions[last], grown_from.first_offsets[last]

    @property
    def position(self) -> int:
        """The next batch's position in the log."""
        return self._state[_POSITION]

    def add(self, data: memoryview, path: PathLike = None) -> None:
        """Process the complete and verified batches in `data`, which are at `position` in the log.

        Raises CorruptBatchError for offsets that decrease, InvalidRecordError, DecompressionError.
        """
        start, index = self.position, 0
        while index < len(data):
            before = index
            index, why = kernel.map_batches(data, index, len(data), self._block_bytes, self._state, self._times)
            self._digest(data[before:index])
            if why == _BLOCK_FULL:
                self._finish_block()
            elif why > _BLOCK_FULL:
                self._make_room(why)
            elif index < len(data):
                header = read_header(data, index, start + index, path)
                self._add_one(header, data, index, path)
                self._digest(data[index : index + header.size])
                index += header.size

    def _add_one(self, header: BatchHeader, data: memoryview, index: int, path: PathLike) -> None:
        """Process a batch that the kernel does not handle: a compressed or damaged batch, or one of an old format."""
        state, rows = self._state, self._rows
        if state[_BLOCK] >= 0 and state[_POSITION] - state[_BLOCK] >= self._block_bytes:
            self._finish_block()
        first_offset, count, noted = header.base_offset, header.record_count, 0
        self._make_room(state[_TIMES] + 1)
        if header.is_control:
            count = 0
        elif (
            header.magic == 2 and header.timestamp_type == LOG_APPEND_TIME and header.max_timestamp != NO_TIMESTAMP and count > 0
        ):
            self._times[state[_TIMES]] = header.max_timestamp
            state[_TIMES] += 1
            noted = count
        else:
            rows.clear()
            count, _ = scan_batch(rows, header, data, index, path=path)
            self._make_room(state[_TIMES] + count)
            noted = kernel.note_timestamps(rows, self._times, state[_TIMES])
            state[_TIMES] += noted
            if header.magic < 2 and count:
                first_offset = rows.column("offset")[0]
        if not state[_NEXT_OFFSET] <= first_offset <= header.last_offset < MAX_OFFSET:
            raise CorruptBatchError(
                "a batch's offset is below the end of the previous batch",
                path=path,
                position=header.position,
                found=first_offset,
                expected=f">= {state[_NEXT_OFFSET]}",
            )
        if state[_RECORDS] + count > _INT32_MAX:
            raise CorruptBatchError(
                "a block has more records than a time map can count", path=path, position=header.position, found=count
            )
        if state[_BLOCK] < 0:
            state[_BLOCK], state[_FIRST_OFFSET] = state[_POSITION], first_offset
        state[_LAST_BATCH] = state[_POSITION] - state[_BLOCK]
        state[_RECORDS] += count
        state[_WITHOUT] += count - noted
        state[_LAST_OFFSET], state[_LAST_CRC] = header.base_offset, header.crc
        state[_POSITION], state[_NEXT_OFFSET] = state[_POSITION] + header.size, header.next_offset

    def _digest(self, batches: memoryview) -> None:
        """Add batches of the unfinished block to its digest."""
        _, self._state[_DIGEST] = digest_batches(batches, len(batches), self._state[_DIGEST])

    def _make_room(self, entries: int) -> None:
        if entries > len(self._times):
            self._times.frombytes(bytes(8 * (max(entries, 2 * len(self._times)) - len(self._times))))

    def _finish_block(self) -> None:
        _append_block(self._columns, self._state, self._times)
        self._state[_BLOCK:] = _NO_BLOCK

    def build(self, stamp: FileStamp = UNKNOWN) -> TimeMap | None:
        """Return a map of the batches added so far, or None if there are none. More batches can be added afterwards.

        `stamp` is the file's `file_stamp`. The caller must have checked that the stamp did not change during the read.
        """
        columns = tuple(column[:] for column in self._columns)
        if self._state[_BLOCK] >= 0:
            _append_block(columns, self._state, self._times)
        if not columns[0]:
            return None
        return TimeMap(
            self._block_bytes,
            self.base_offset,
            self._state[_POSITION],
            self._state[_NEXT_OFFSET],
            self._state[_LAST_OFFSET],
            self._state[_LAST_CRC],
            *columns,
            stamp=stamp,
        )


def _append_block(columns: tuple[array[int], ...], state: array[int], times: array[int]) -> None:
    """Add a block to the map's columns."""
    smallest, largest, holes = kernel.time_bounds(times, state[_TIMES], MAX_HOLES)
    columns[-2].extend(holes[::2])
    columns[-1].extend(holes[1::2])
    block = (state[_BLOCK], state[_FIRST_OFFSET], smallest, largest, state[_LAST_BATCH], state[_DIGEST], state[_RECORDS])
    for column, number in zip(columns[:-2], (*block, state[_WITHOUT], len(columns[-1])), strict=True):
        column.append(number)


def add_batches(builder: TimeMapBuilder, file: ReadOnlyFile, end_position: int) -> None:
    """Add the batches from the builder's position up to `end_position`, which must be the end of a batch.

    May be called again with a later end, to map a long segment in several steps. Raises CorruptBatchError, InvalidRecordError,
    DecompressionError for damage, SegmentChangedError for a file that was truncated, StorageError.
    """
    scan = SegmentScan(builder.base_offset, _NO_INDEX_INTERVAL_BYTES)
    for chunk in _chunks(scan, file, builder.position, end_position):
        builder.add(chunk, file.path)


def _chunks(scan: SegmentScan, file: ReadOnlyFile, position: int, end_position: int) -> Iterator[memoryview]:
    """Yield the log from `position` on in chunks of complete, verified batches. A chunk is valid only until the next one is
    yielded.
    """
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
                "a segment was truncated while it was being read", path=file.path, position=position, found=f"{count} bytes"
            )
        sound = scan.scan(chunk, position)
        if scan.fault:
            raise CorruptBatchError(BATCH_FAULTS[scan.fault], path=file.path, position=scan.fault_position)
        if sound:
            yield chunk[:sound]
        is_last = position + wanted == end_position
        position += sound
        needed = scan.needed_bytes
        if needed > end_position - position or (is_last and sound < wanted):
            raise CorruptBatchError("a batch is truncated by the end of its segment", path=file.path, position=position)
        if needed > LARGE_BATCH_BYTES:
            check_crc_by_pieces(file, read_header(file.read(position, HEADER_BYTES), 0, position, file.path))
        wanted = max(CHUNK_BYTES, needed)
