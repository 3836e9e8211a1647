"""Converts rows into Arrow's layouts: `gather` copies keys or values, `views` points at them, `gather_headers` builds
list<struct>.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from cython.cimports.tidelog.records.kernel.rows.rows import Rows
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from tidelog.records.kernel.rows.rows import Rows

build_stamp.check(__name__, __file__)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _run_end(sources: cython.p_int, row: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the end of the consecutive rows from `row` on that have the same source, at most `last`."""
    source: cython.int = sources[row]
    while row < last and sources[row] == source:
        row += 1
    return row


@cython.cfunc
def _positions(rows: Rows, which: cython.int) -> cython.p_int:
    return rows.key_position if which == layout.KEY else rows.value_position


@cython.cfunc
def _lengths(rows: Rows, which: cython.int) -> cython.p_int:
    return rows.key_length if which == layout.KEY else rows.value_length


@cython.cfunc
def _check_range(rows: Rows, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.void:
    if not 0 <= first <= last <= rows.count:
        raise ValueError(f"the rows {first}:{last} are outside of the {rows.count} rows")


def sizes(rows: Rows, which: cython.int, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Return (bytes, nulls) of the keys (`KEY`) or values (`VALUE`) of rows `first` to `last`, exclusive."""
    _check_range(rows, first, last)
    lengths: cython.p_int = _lengths(rows, which)
    total: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    length: cython.longlong
    with cython.nogil:
        for row in range(first, last):
            length = lengths[row]
            if length < 0:
                nulls += 1
            else:
                total += length
    return (total, nulls)


@cython.cfunc
def _validity(lengths: cython.p_int, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> bytearray:
    """Return Arrow's validity bitmap: a bit for each row, least significant first, 0 if the length is negative."""
    bitmap = bytearray((last - first + 7) // 8)
    out: cython.p_uchar = buffers.output(bitmap)
    i: cython.Py_ssize_t
    for i in range(last - first):
        if lengths[first + i] >= 0:
            out[i >> 3] |= 1 << (i & 7)
    return bitmap


def timestamp_validity(rows: Rows, name: str, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Return (number of nulls, bitmap or None) of the column `timestamp` or `create_time`, in which -1 stands for null."""
    _check_range(rows, first, last)
    times: cython.p_longlong = rows.create_time if name == "create_time" else rows.timestamp
    nulls: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for row in range(first, last):
        nulls += times[row] == -1
    if nulls == 0:
        return (0, None)
    bitmap = bytearray((last - first + 7) // 8)
    out: cython.p_uchar = buffers.output(bitmap)
    for i in range(last - first):
        if times[first + i] != -1:
            out[i >> 3] |= 1 << (i & 7)
    return (nulls, bitmap)


def gather(rows: Rows, which: cython.int, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Copy keys or values into Arrow's binary layout. Return (offsets, data, validity or None, number of nulls).

    `offsets` are int32: raises OverflowError if the bytes (`sizes`) reach 2 GiB. `sources[i]` is the buffer into which the rows
    of source i point.
    """
    total, nulls = sizes(rows, which, first, last)
    if total > 2147483647:
        raise OverflowError(f"{total} bytes are too many for int32 offsets")
    count: cython.Py_ssize_t = last - first
    offsets = buffers.new_bytes(4 * (count + 1))
    data = buffers.new_bytes(total)
    offsets_view = memoryview(offsets).cast("i")
    out_offsets: cython.p_int = buffers.ints(offsets_view)
    out: cython.p_uchar = buffers.output(data)
    lengths: cython.p_int = _lengths(rows, which)
    positions: cython.p_int = _positions(rows, which)
    row_sources: cython.p_int = rows.source
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    room: cython.longlong = total
    available: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t = first
    end: cython.Py_ssize_t
    length: cython.Py_ssize_t
    position: cython.Py_ssize_t
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = buffers.input_bytes(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                out_offsets[row - first] = at
                length = lengths[row]
                if length > 0:
                    position = positions[row]
                    if cython.compiled:
                        if length <= 16 and position + 16 <= available and at + 16 <= room:
                            # Short ones as one move of fixed size; the excess is overwritten.
                            memcpy(cython.address(out[at]), cython.address(p[position]), 16)
                        else:
                            memcpy(cython.address(out[at]), cython.address(p[position]), length)
                    else:
                        out[at : at + length] = p[position : position + length]
                    at += length
                row += 1
    out_offsets[count] = at
    return (offsets, data, _validity(lengths, first, last) if nulls else None, nulls)


def views(
    rows: Rows, which: cython.int, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t, first_source: cython.int
) -> tuple:
    """Return keys or values in Arrow's view layout, without a copy: (views, validity or None, number of nulls).

    A view has 16 bytes: the int32 length, then up to 12 bytes of data; for longer data, its first 4 bytes, the int32 buffer index
    and the int32 position. Buffer indices are relative to `first_source`.
    """
    _, nulls = sizes(rows, which, first, last)
    count: cython.Py_ssize_t = last - first
    # 16 bytes more: tails are cleared with a store of fixed size that reaches into the next view.
    out_bytes = buffers.new_bytes(16 * count + 16)
    ints = memoryview(out_bytes).cast("i")
    out_ints: cython.p_int = buffers.ints(ints)
    out: cython.p_uchar = buffers.output(out_bytes)
    zeros: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(_ZEROS)
    lengths: cython.p_int = _lengths(rows, which)
    positions: cython.p_int = _positions(rows, which)
    row_sources: cython.p_int = rows.source
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    available: cython.Py_ssize_t
    buffer_index: cython.int
    row: cython.Py_ssize_t = first
    end: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    position: cython.Py_ssize_t
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = buffers.input_bytes(source_view)
        buffer_index = row_sources[row] - first_source
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                length = lengths[row]
                position = positions[row]
                if length > 12:
                    out_ints[at >> 2] = length
                    if cython.compiled:
                        memcpy(cython.address(out[at + 4]), cython.address(p[position]), 4)
                    else:
                        out[at + 4 : at + 8] = p[position : position + 4]
                    out_ints[(at >> 2) + 2] = buffer_index
                    out_ints[(at >> 2) + 3] = position
                else:
                    if length < 0:
                        length = 0
                    out_ints[at >> 2] = length
                    if cython.compiled:
                        if position + 12 <= available:
                            memcpy(cython.address(out[at + 4]), cython.address(p[position]), 12)
                        elif length > 0:
                            memcpy(cython.address(out[at + 4]), cython.address(p[position]), length)
                        memcpy(cython.address(out[at + 4 + length]), zeros, 16)
                    else:
                        out[at + 4 : at + 4 + length] = p[position : position + length]
                        out[at + 4 + length : at + 16] = zeros[: 12 - length]
                at += 16
                row += 1
    ints.release()
    del out_bytes[16 * count :]
    return (out_bytes, _validity(lengths, first, last) if nulls else None, nulls)


_ZEROS = bytes(16)


def gather_headers(rows: Rows, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Copy headers into the buffers of Arrow's list<struct<key: utf8, value: binary>>.

    Return (list offsets, key offsets, key data, value offsets, value data, value validity or None, number of null values, number
    of headers). The caller checks that the keys are UTF-8. Raises OverflowError if keys or values reach 2 GiB.
    """
    _check_range(rows, first, last)
    row_sources: cython.p_int = rows.source
    header_counts: cython.p_int = rows.header_count
    headers_positions: cython.p_int = rows.headers_position
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    available: cython.Py_ssize_t
    row: cython.Py_ssize_t
    end: cython.Py_ssize_t
    j: cython.int
    pos: cython.Py_ssize_t
    raw: cython.longlong
    packed: cython.longlong
    length: cython.longlong
    headers: cython.longlong = 0
    key_bytes: cython.longlong = 0
    value_bytes: cython.longlong = 0
    nulls: cython.longlong = 0

    row = first
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = buffers.input_bytes(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                if header_counts[row] > 0:
                    headers += header_counts[row]
                    pos = headers_positions[row]
                    for j in range(header_counts[row]):
                        packed = varints.read(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        key_bytes += length
                        pos += (packed & 15) + length
                        packed = varints.read(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if length < 0:
                            nulls += 1
                        else:
                            value_bytes += length
                            pos += length
                row += 1
    if key_bytes > 2147483647 or value_bytes > 2147483647 or headers > 2147483647:
        raise OverflowError(f"{max(key_bytes, value_bytes)} bytes of headers are too many for int32 offsets")

    list_offsets = buffers.new_bytes(4 * (last - first + 1))
    key_offsets = buffers.new_bytes(4 * (headers + 1))
    value_offsets = buffers.new_bytes(4 * (headers + 1))
    key_data = buffers.new_bytes(key_bytes)
    value_data = buffers.new_bytes(value_bytes)
    validity = bytearray((headers + 7) // 8)
    list_view = memoryview(list_offsets).cast("i")
    key_view = memoryview(key_offsets).cast("i")
    value_view = memoryview(value_offsets).cast("i")
    out_list: cython.p_int = buffers.ints(list_view)
    out_key_offsets: cython.p_int = buffers.ints(key_view)
    out_value_offsets: cython.p_int = buffers.ints(value_view)
    out_keys: cython.p_uchar = buffers.output(key_data)
    out_values: cython.p_uchar = buffers.output(value_data)
    out_validity: cython.p_uchar = buffers.output(validity)
    at: cython.Py_ssize_t = 0
    key_at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t = 0

    row = first
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = buffers.input_bytes(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                out_list[row - first] = at
                if header_counts[row] > 0:
                    pos = headers_positions[row]
                    for j in range(header_counts[row]):
                        out_key_offsets[at] = key_at
                        out_value_offsets[at] = value_at
                        packed = varints.read(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if cython.compiled:
                            memcpy(cython.address(out_keys[key_at]), cython.address(p[pos]), length)
                        else:
                            out_keys[key_at : key_at + length] = p[pos : pos + length]
                        key_at += length
                        pos += length
                        packed = varints.read(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if length >= 0:
                            if cython.compiled:
                                memcpy(cython.address(out_values[value_at]), cython.address(p[pos]), length)
                            else:
                                out_values[value_at : value_at + length] = p[pos : pos + length]
                            value_at += length
                            pos += length
                            out_validity[at >> 3] |= 1 << (at & 7)
                        at += 1
                row += 1
    out_list[last - first] = at
    out_key_offsets[at] = key_at
    out_value_offsets[at] = value_at
    return (list_offsets, key_offsets, key_data, value_offsets, value_data, validity if nulls else None, nulls, headers)


def starts_inside_characters(offsets: cython.const[cython.int][::1], data: cython.const[cython.uchar][::1]) -> bool:
    """Return whether any slice of `data` at `offsets` begins with a UTF-8 continuation byte.

    If the whole text is valid UTF-8 and no slice begins with such a byte, each slice is valid.
    """
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(data)
    for i in range(len(offsets)):
        if offsets[i] < size and data[offsets[i]] & 0xC0 == 0x80:
            return True
    return False
