"""Encodes columns into the records section of a v2 batch. `record_scan` does the reverse, and describes the format."""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from cython.cimports.tidelog.records.kernel.rows.binary_column import BinaryColumn
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from tidelog.records.kernel.rows.binary_column import BinaryColumn

build_stamp.check(__name__, __file__)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _body_bytes(
    time_delta: cython.longlong,
    offset_delta: cython.longlong,
    key_length: cython.longlong,
    value_length: cython.longlong,
    headers_length: cython.longlong,
) -> cython.longlong:
    size: cython.longlong = 1 + varints.size(time_delta) + varints.size(offset_delta)
    size += varints.size(key_length) + varints.size(value_length)
    size += headers_length if headers_length > 0 else 1
    if key_length > 0:
        size += key_length
    if value_length > 0:
        size += value_length
    return size


def size_records_v2(
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    limit_bytes: cython.longlong,
) -> tuple:
    """Return (rows, bytes, max timestamp) of one batch's records section with the entries `first` to `last` (exclusive).

    The section stays within `limit_bytes`, unless the first record alone is larger. `indices` (int32, or None for 0, 1, 2...)
    maps entries to rows, to select the rows of one partition from a shared column. `headers` is a column of encoded headers
    (`builder.encode_headers`), or None. `deltas` (int32 by row) are the offsets relative to the batch, or None for 0, 1, 2...
    Timestamps are written relative to `base_timestamp`; None stands for the first record's timestamp. Raises ValueError for a row
    outside of the columns, and for a negative timestamp that is not -1.
    """
    return _encode(None, 0, timestamps, keys, values, headers, indices, deltas, base_timestamp, first, last, limit_bytes)


def encode_records_v2(
    out: object,
    start: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
) -> tuple:
    """Write the records section of a v2 batch to `out[start:]`, which has the size that `size_records_v2` returned. Return what
    that function returns.
    """
    return _encode(out, start, timestamps, keys, values, headers, indices, deltas, base_timestamp, first, last, layout.NO_LIMIT)


@cython.cfunc
def _encode(
    target: object,
    start: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    limit_bytes: cython.longlong,
) -> tuple:
    """Write to `target`, or only compute the size if `target` is None. One loop does both, so that they cannot differ."""
    writing: cython.bint = target is not None
    out: cython.p_uchar = buffers.output(target if writing else bytearray(1))
    room: cython.Py_ssize_t = len(target) if writing else 0
    has_headers: cython.bint = headers is not None
    header_column: BinaryColumn = headers if has_headers else keys
    has_indices: cython.bint = indices is not None
    index_view: cython.const[cython.int][::1] = indices if has_indices else array("i", [0])
    index: cython.pointer(cython.const[cython.int]) = buffers.input_ints(index_view)
    has_deltas: cython.bint = deltas is not None
    delta_view: cython.const[cython.int][::1] = deltas if has_deltas else index_view
    delta: cython.pointer(cython.const[cython.int]) = buffers.input_ints(delta_view)
    row_count: cython.Py_ssize_t = min(len(timestamps), keys.length, values.length)
    if has_headers:
        row_count = min(row_count, header_column.length)
    if has_deltas:
        row_count = min(row_count, len(delta_view))
    entries: cython.Py_ssize_t = len(index_view) if has_indices else row_count
    if not 0 <= first <= last <= entries:
        raise ValueError(f"entries {first}:{last} are not a range of the {entries} entries")
    if writing and not 0 <= start <= room:
        raise ValueError(f"the start {start} is outside of {room} bytes")

    time_pointer: cython.pointer(cython.const[cython.longlong]) = buffers.input_longs(timestamps)
    i: cython.Py_ssize_t = first
    row: cython.Py_ssize_t = 0
    has_base: cython.bint = base_timestamp is not None
    base: cython.longlong = base_timestamp if has_base else 0
    if base < -1:
        raise ValueError(f"the base timestamp {base} is negative")
    offset_delta: cython.longlong
    max_timestamp: cython.longlong = -1
    timestamp: cython.longlong = 0
    total: cython.longlong = 0
    body: cython.longlong
    size: cython.longlong
    key_length: cython.longlong
    value_length: cython.longlong
    headers_length: cython.longlong
    at: cython.Py_ssize_t = start
    fault: cython.int = 0
    with cython.nogil:
        while i < last:
            row = index[i] if has_indices else i
            if row < 0 or row >= row_count:
                fault = 1
                break
            timestamp = time_pointer[row]
            if timestamp < -1:
                fault = 2
                break
            if i == first and not has_base:
                base = timestamp
            if base < 0 and timestamp == layout.MAX_INT64:
                fault = 4
                break
            offset_delta = delta[row] if has_deltas else i - first
            key_length = _length(keys, row)
            value_length = _length(values, row)
            headers_length = _length(header_column, row) if has_headers else 0
            body = _body_bytes(timestamp - base, offset_delta, key_length, value_length, headers_length)
            size = body + varints.size(body)
            if total + size > limit_bytes and i > first:
                break
            total += size
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if writing:
                if size > room - at:
                    fault = 3
                    break
                at = varints.put(out, at, body)
                out[at] = 0
                at = varints.put(out, at + 1, timestamp - base)
                at = varints.put(out, at, offset_delta)
                at = varints.put(out, at, key_length)
                at = _put_entry(out, at, keys, row, key_length)
                at = varints.put(out, at, value_length)
                at = _put_entry(out, at, values, row, value_length)
                if headers_length > 0:
                    at = _put_entry(out, at, header_column, row, headers_length)
                else:
                    out[at] = 0
                    at += 1
            i += 1
    if fault == 1:
        raise ValueError(f"row {row} is outside of the {row_count} rows")
    if fault == 2:
        raise ValueError(f"there is a negative timestamp, {timestamp}, in row {row}")
    if fault == 3:
        raise ValueError(f"there is no room for record {i - first} at byte {at} of {room}")
    if fault == 4:
        raise ValueError(f"timestamp {timestamp} in row {row} is too far from the batch's first, {base}")
    return (i - first, total, max_timestamp)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _length(column: BinaryColumn, row: cython.Py_ssize_t) -> cython.longlong:
    """Return the length of an entry, -1 for null."""
    return buffers.entry_length(column.offsets, column.validity, column.has_validity, column.first + row)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_entry(
    out: cython.p_uchar, at: cython.Py_ssize_t, column: BinaryColumn, row: cython.Py_ssize_t, length: cython.longlong
) -> cython.Py_ssize_t:
    if length <= 0:
        return at
    return buffers.copy(out, at, column.data, column.offsets[column.first + row], length)
