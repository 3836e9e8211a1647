"""Turns kernel columns into Arrow batches, and combines small Arrow batches.

The kernel's buffers already have Arrow's layouts, so they are wrapped, not copied. Topic and partition are the same in every row,
so one array for each is made and sliced. Only `split_reader` and `stream` use this.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from tidelog.errors import OffsetOutOfRangeError, SegmentChangedError
from tidelog.records.columns import BinaryBuffers, Columns, TimeBuffers, ViewBuffers
from tidelog.sources.schema import HEADERS, TIMESTAMP, scan_schema

MIN_BATCH_ROWS = 10_000
"""Arrow batches with fewer rows are combined."""

BATCH_BYTES = 32 * 1024 * 1024
"""After this many decompressed bytes of log, the collected rows become an Arrow batch, however few they are."""

GONE = (OffsetOutOfRangeError, SegmentChangedError)
"""Errors that mean that records disappeared after planning."""

_SPARSE = 4
"""Views keep the log's bytes in memory. If less than 1/_SPARSE of these bytes is used, values are copied instead."""


class Assembler:
    """Makes Arrow batches of one partition. `names` are the columns, in order."""

    def __init__(self, topic: str, partition: int, names: tuple[str, ...], views: bool) -> None:
        self._schema = scan_schema(names, views=views)
        self._topic = _Constant(topic, pa.string())
        self._partition = _Constant(partition, pa.int32())
        self._views = views
        self._dense = True
        makers: dict[str, Callable[[Columns, int, int], pa.Array]] = {
            "topic": lambda _, first, last: self._topic.array(last - first),
            "partition": lambda _, first, last: self._partition.array(last - first),
            "offset": _offsets,
            "timestamp": lambda columns, first, last: _times(columns.timestamps(first, last), last - first),
            "timestamp_type": _timestamp_types,
            "create_time": lambda columns, first, last: _times(columns.create_times(first, last), last - first),
            "key": self._keys,
            "value": self._values,
            "headers": _headers,
        }
        self._makers = [makers[name] for name in names]

    def assemble(self, columns: Columns, first: int, last: int) -> pa.RecordBatch:
        """Return the rows [`first`, `last`) as an Arrow batch. The caller may clear `columns` afterwards."""
        if self._views:
            self._dense = self._is_dense(columns)
        return pa.RecordBatch.from_arrays([make(columns, first, last) for make in self._makers], schema=self._schema)

    def _keys(self, columns: Columns, first: int, last: int) -> pa.Array:
        if self._views and self._dense:
            return _views(columns.key_views(first, last), last - first)
        return self._maybe_views(_binary(columns.keys(first, last), last - first))

    def _values(self, columns: Columns, first: int, last: int) -> pa.Array:
        if self._views and self._dense:
            return _views(columns.value_views(first, last), last - first)
        return self._maybe_views(_binary(columns.values(first, last), last - first))

    def _is_dense(self, columns: Columns) -> bool:
        size_bytes = 0
        if "key" in columns.names:
            size_bytes += columns.key_bytes()
        if "value" in columns.names:
            size_bytes += columns.value_bytes()
        return size_bytes * _SPARSE >= columns.source_bytes

    def _maybe_views(self, array: pa.Array) -> pa.Array:
        return array.cast(pa.binary_view()) if self._views else array


class _Constant:
    """Makes arrays that repeat one value. They are slices of one array, which is made longer when necessary."""

    def __init__(self, value: str | int, kind: pa.DataType) -> None:
        # Made from bytes: `pa.scalar` and `pa.array` import pandas if it is installed, which takes half a second of a short
        # command.
        data = value.encode() if isinstance(value, str) else value.to_bytes(kind.byte_width, sys.byteorder)
        offsets = [pa.py_buffer(struct.pack("=ii", 0, len(data)))] if isinstance(value, str) else []
        self._scalar = pa.Array.from_buffers(kind, 1, [None, *offsets, pa.py_buffer(data)], 0)[0]
        self._array = pa.repeat(self._scalar, 0)

    def array(self, rows: int) -> pa.Array:
        if rows > len(self._array):
            self._array = pa.repeat(self._scalar, max(rows, 2 * len(self._array)))
        return self._array.slice(0, rows)


def _offsets(columns: Columns, first: int, last: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), last - first, [None, pa.py_buffer(columns.offsets(first, last))], 0)


def _times(times: TimeBuffers, rows: int) -> pa.Array:
    return pa.Array.from_buffers(TIMESTAMP, rows, [_bitmap(times.validity), pa.py_buffer(times.data)], times.null_count)


def _timestamp_types(columns: Columns, first: int, last: int) -> pa.Array:
    narrow, rows = bytes(columns.timestamp_types(first, last)), last - first
    if rows and narrow.count(narrow[:1]) == rows:
        # Arrow's cast would import pyarrow.compute, a fifth of the time of a short command.
        wide = int.from_bytes(narrow[:1], signed=True).to_bytes(4, sys.byteorder, signed=True) * rows
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(wide)], 0)
    return pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(narrow)], 0).cast(pa.int32())


def _binary(binary: BinaryBuffers, rows: int) -> pa.Array:
    buffers = [_bitmap(binary.validity), pa.py_buffer(binary.offsets), pa.py_buffer(binary.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, binary.null_count)


def _views(views: ViewBuffers, rows: int) -> pa.Array:
    buffers = [_bitmap(views.validity), pa.py_buffer(views.views), *map(pa.py_buffer, views.buffers)]
    return pa.Array.from_buffers(pa.binary_view(), rows, buffers, views.null_count)


def _headers(columns: Columns, first: int, last: int) -> pa.Array:
    found = columns.headers(first, last)
    count = found.header_count
    keys = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(found.key_offsets), pa.py_buffer(found.key_data)], 0)
    values = pa.Array.from_buffers(
        pa.binary(),
        count,
        [_bitmap(found.value_validity), pa.py_buffer(found.value_offsets), pa.py_buffer(found.value_data)],
        found.value_null_count,
    )
    entries = pa.Array.from_buffers(HEADERS.value_type, count, [None], 0, children=[keys, values])
    return pa.Array.from_buffers(HEADERS, last - first, [None, pa.py_buffer(found.list_offsets)], 0, children=[entries])


def _bitmap(validity: bytearray | None) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)


def coalesce(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with small adjacent batches combined up to `BATCH_BYTES`. No batch is empty.

    If records were deleted, the rows before them are yielded first, then the error is raised.
    """
    enough = min(MIN_BATCH_ROWS, batch_rows)
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if not waiting and batch.num_rows >= enough:
                yield batch
                continue
            waiting.append(batch)
            rows += batch.num_rows
            size_bytes += batch.get_total_buffer_size()
            if rows >= enough or size_bytes >= BATCH_BYTES:
                yield from _together(waiting, rows, batch_rows)
                waiting, rows, size_bytes = [], 0, 0
    except GONE:
        if waiting:
            yield from _together(waiting, rows, batch_rows)
        raise
    if waiting:
        yield from _together(waiting, rows, batch_rows)


def _together(batches: list[pa.RecordBatch], rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    pieces = -(-rows // batch_rows)
    for piece in range(pieces):
        first = rows * piece // pieces
        yield whole.slice(first, rows * (piece + 1) // pieces - first)
