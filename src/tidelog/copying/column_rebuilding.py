"""Rebuilds batches that cannot be copied unchanged: reads their records as columns, and builds v2 batches without gaps
from the columns.

| part of a record | kept |
|---|---|
| key, value, headers | byte for byte, including nulls |
| timestamp | chosen by `TimeRule`, shifted if the copy shifts times; a record without a timestamp stays without one |
| codec | the codec of its batch; rows with different codecs never share a batch |
| offset | not kept: offsets in a producer's batch are 0, 1, 2...; `runs` has the source offsets of the rows |

Rows of adjacent batches are combined, up to `BATCH_BYTES` before compression. The copy therefore has batches of reasonable size
even if a time bound selects only two records of each batch, or a v0 or v1 log has one message per batch.

No record becomes a Python object. Only `source_batches` uses this.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.copying.spreading import Spread
from tidelog.errors import InvalidArgumentError
from tidelog.ingest.arrow_columns import encoded_headers, int_view
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import BatchHeader
from tidelog.records.builder import build_batch_v2_from_columns
from tidelog.records.columns import BinaryBuffers, Columns, HeaderBuffers, TimeBuffers
from tidelog.records.compression import Codec
from tidelog.records.kernel import BinaryColumn

BATCH_BYTES = 64 * 1024
"""Size of a rebuilt batch before compression; a single record may be larger."""

HELD_BYTES = 16 * BATCH_BYTES
"""Batches are built once about this many bytes of keys and values have been collected."""

SOURCE_BYTES = 64 * 1024 * 1024
"""The most bytes of the log kept in memory. A limit is needed because each collected row may keep a whole buffer in memory."""


class TimeRule(enum.Enum):
    """Decides which timestamp of a record becomes the copy's CreateTime if the log has LogAppendTime."""

    PRODUCER = "producer"
    """The producer's timestamp if the log still has it (v2), otherwise the append time."""
    LOG = "log"
    """The timestamp that the log's readers see."""


class SourceRun(NamedTuple):
    """Consecutive source offsets without a gap, both ends included."""

    first: int
    last: int


class RebuiltBatch(NamedTuple):
    """A finished v2 batch with base offset 0, and the source offsets of its records."""

    data: bytearray
    runs: tuple[SourceRun, ...]
    record_count: int
    max_timestamp: int
    partition: int | None = None
    """The target partition, if the rows are spread over several partitions. `runs` is then a single run, from the first source
    offset to the last, with gaps."""


class Rebuilder:
    """Collects rows within bounds, and returns them in batches. Not thread-safe."""

    def __init__(self, columns: Columns, rule: TimeRule, shift_ms: int, spread: Spread | None = None) -> None:
        self._columns = columns
        self._spread = spread
        self._turn = 0
        self._rule = rule
        self._shift_ms = shift_ms
        self._codec = Codec.NONE
        self._bytes = 0
        self._without_timestamp = 0

    @property
    def rows(self) -> int:
        """The number of collected rows that `take` has not returned yet."""
        return self._columns.rows

    def takes(self, codec: Codec) -> bool:
        """Whether rows of this codec may be added now. If not, call `take` first."""
        if not self._columns.rows:
            return True
        return codec is self._codec and self._bytes < HELD_BYTES and self._columns.source_bytes < SOURCE_BYTES

    def add(self, header: BatchHeader, buffer: memoryview, index: int, path: str) -> int:
        """Add the rows of a batch that are within the bounds; return the number of rows added. Raises CorruptDataError."""
        if not self._columns.rows:
            self._codec = header.codec
        before = self._columns.without_timestamp
        added = self._columns.add(header, buffer, index, path)
        self._without_timestamp += self._columns.without_timestamp - before
        if added:
            rows = self._columns.rows
            self._bytes += self._columns.key_bytes(rows - added) + self._columns.value_bytes(rows - added)
        return added

    def take_without_timestamp(self) -> int:
        """Return how many records without a timestamp were left out since the last call."""
        count, self._without_timestamp = self._without_timestamp, 0
        return count

    def take(self) -> Iterator[RebuiltBatch]:
        """Return all rows in batches. Raises InvalidArgumentError if shifted times would be negative or too large."""
        columns = self._columns
        rows = columns.rows
        if not rows:
            return
        offsets = memoryview(columns.offsets()).cast("q")
        times = self._times(rows)
        keys, values = _column(columns.keys(), rows), _column(columns.values(), rows)
        headers = _encoded(columns.raw_headers(), rows)
        columns.clear()
        self._bytes = 0
        build = partial(
            build_batch_v2_from_columns,
            times,
            keys,
            values,
            base_offset=0,
            headers=headers,
            limit_bytes=BATCH_BYTES,
            codec=self._codec,
        )
        if self._spread is not None:
            self._turn += 1
            for partition, chosen in self._spread.rows(keys, rows, self._turn):
                indices = int_view(chosen, "i")
                first = 0
                while first < len(indices):
                    built = build(indices=indices, first=first, last=len(indices))
                    end = first + built.record_count
                    run = SourceRun(offsets[indices[first]], offsets[indices[end - 1]])
                    yield RebuiltBatch(built.data, (run,), built.record_count, built.max_timestamp, partition)
                    first = end
            return
        runs = _runs(offsets)
        first = at = 0
        while first < rows:
            built = build(first=first, last=rows)
            end = first + built.record_count
            its_runs, at = _cut(runs, at, offsets[first], offsets[end - 1])
            yield RebuiltBatch(built.data, its_runs, built.record_count, built.max_timestamp)
            first = end

    def _times(self, rows: int) -> memoryview:
        """Return the timestamps to write: int64, -1 for none."""
        times = time_array(self._columns.timestamps(), rows)
        if self._rule is TimeRule.PRODUCER:
            times = pc.coalesce(time_array(self._columns.create_times(), rows), times)
        if self._shift_ms:
            times = shifted(times, self._shift_ms)
        return int_view(pc.fill_null(times, NO_TIMESTAMP), "q")


def shifted(times: pa.Array, shift_ms: int) -> pa.Array:
    """Return the times shifted by `shift_ms`. Raises InvalidArgumentError if a shifted time is before 1970 or beyond int64."""
    try:
        moved = pc.add_checked(times, pa.scalar(shift_ms, pa.int64()))
    except pa.ArrowInvalid:
        raise InvalidArgumentError("a shifted timestamp does not fit in int64: shift by less", found=f"{shift_ms} ms") from None
    smallest = pc.min(moved).as_py()
    if smallest is not None and smallest < 0:
        raise InvalidArgumentError(
            "a shifted timestamp is before 1970: shift by less", found=f"{smallest} ms", expected="0 or more"
        )
    return moved


def time_array(times: TimeBuffers, rows: int) -> pa.Array:
    """Return times as an int64 array; records without a time are null."""
    validity = None if times.validity is None else pa.py_buffer(times.validity)
    return pa.Array.from_buffers(pa.int64(), rows, [validity, pa.py_buffer(times.data)], times.null_count)


def _column(binary: BinaryBuffers, rows: int) -> BinaryColumn:
    return BinaryColumn(binary.offsets, binary.data, binary.validity, 0, rows)


def _runs(offsets: memoryview) -> list[SourceRun]:
    """Return ascending offsets as runs without gaps. Runs Python code once per gap, not once per offset."""
    last = len(offsets) - 1
    if offsets[last] - offsets[0] == last:
        return [SourceRun(offsets[0], offsets[last])]
    column = pa.Array.from_buffers(pa.int64(), len(offsets), [None, pa.py_buffer(offsets)], 0)
    gaps = pc.indices_nonzero(pc.not_equal(pc.subtract(column[1:], column[:-1]), 1)).to_pylist()
    starts = [0, *(gap + 1 for gap in gaps)]
    ends = [*gaps, last]
    return [SourceRun(offsets[start], offsets[end]) for start, end in zip(starts, ends, strict=True)]


def _cut(runs: list[SourceRun], at: int, first: int, last: int) -> tuple[tuple[SourceRun, ...], int]:
    """Return the parts of `runs[at:]` that are in `first..last`, and the index to continue at."""
    found = []
    while at < len(runs) and runs[at].first <= last:
        found.append(SourceRun(max(first, runs[at].first), min(last, runs[at].last)))
        if runs[at].last > last:
            break
        at += 1
    return tuple(found), at


def _encoded(headers: HeaderBuffers, rows: int) -> BinaryColumn | None:
    """Return each row's headers in the encoding of v2 records; None if no row has headers."""
    count = headers.header_count
    if count == 0:
        return None
    keys = _binary(headers.key_offsets, headers.key_data, None, count)
    values = _binary(headers.value_offsets, headers.value_data, headers.value_validity, count)
    whole = encoded_headers(keys, values, pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(headers.list_offsets)]))
    _, offsets, data = whole.buffers()
    return BinaryColumn(offsets, b"" if data is None else data, None, whole.offset, rows)


def _binary(offsets: bytearray, data: bytearray, validity: bytearray | None, length: int) -> pa.Array:
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(pa.binary(), length, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)], -1)
