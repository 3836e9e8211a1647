"""Decodes v0 and v1 messages into rows.

A message (spec §10.2)::

    int64 offset | int32 size of what follows | int32 CRC | int8 magic | int8 attributes | int64 timestamp, v1 only
    int32 key length, -1 null | key | int32 value length, -1 null | value
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout
    from cython.cimports.tidelog.records.kernel.rows.rows import Rows
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout
    from tidelog.records.kernel.rows.rows import Rows

build_stamp.check(__name__, __file__)


def last_message_offset(data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> tuple:
    """Return (messages, offset field of the last one) of the message set in `data[start:end]`, or (fault code, position)."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    pos: cython.Py_ssize_t = start
    offset: cython.longlong = -1
    size: cython.longlong
    messages: cython.Py_ssize_t = 0
    if start == end:
        return (faults.EMPTY_SET, start)
    while pos < end:
        if end - pos < 26:
            return (faults.CUT_OFF, pos)
        offset = buffers.int64(p, pos)
        size = buffers.int32(p, pos + 8)
        if size < 14 or size > end - pos - 12:
            return (faults.MESSAGE_SIZE, pos)
        messages += 1
        pos += 12 + size
    return (messages, offset)


def scan_messages(
    rows: Rows,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    base_offset: cython.longlong,
    append_time: cython.longlong,
    timestamp_type: cython.int,
    nested: cython.bint,
    mixed: cython.bint,
    source: cython.int,
    limit: cython.longlong,
) -> cython.longlong:
    """Append the v0 or v1 messages in `data[start:end]` to `rows`. Return their number, or a fault code.

    `base_offset` is added to each message's offset field; it is 0 if the offsets are absolute. With `nested`, the messages come
    from a compressed message: none of them may be compressed again, and in a LogAppendTime wrapper their own timestamps are the
    producers'. `magic` and `timestamp_type` are the wrapper's. With `mixed`, messages of the other old format are accepted. If
    `timestamp_type` is -1 (v0), no record has a timestamp; if it is 1, `append_time` is the timestamp of every v1 message.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
    header_bytes: cython.Py_ssize_t
    own_magic: cython.int
    if base_offset < 0:
        rows.fault_position = start
        return faults.OFFSET
    rows.reserve(min((end - start) // (26 if mixed or magic == 0 else 34) + 1, limit))
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    first_row: cython.Py_ssize_t = rows.count
    row: cython.Py_ssize_t = first_row
    pos: cython.Py_ssize_t = start
    at: cython.Py_ssize_t
    message_end: cython.Py_ssize_t
    fault: cython.int = 0
    messages: cython.longlong = 0
    without_timestamp: cython.longlong = 0
    size: cython.longlong
    offset: cython.longlong
    own_timestamp: cython.longlong
    timestamp: cython.longlong
    key_length: cython.longlong
    key_position: cython.Py_ssize_t
    value_length: cython.longlong

    if start == end:
        rows.fault_position = start
        return faults.EMPTY_SET
    with cython.nogil:
        while pos < end and row - first_row < limit:
            if end - pos < 26:
                fault = faults.CUT_OFF
                break
            offset = buffers.int64(p, pos)
            size = buffers.int32(p, pos + 8)
            if size < 14 or size > end - pos - 12:
                fault = faults.MESSAGE_SIZE
                break
            message_end = pos + 12 + size
            own_magic = p[pos + 16]
            if own_magic != magic and not (mixed and own_magic <= 1):
                fault = faults.OTHER_MAGIC
                break
            header_bytes = 26 if own_magic == 0 else 34
            if size < header_bytes - 12:
                fault = faults.MESSAGE_SIZE
                break
            if nested and p[pos + 17] & 7 != 0:
                fault = faults.NESTED
                break
            if offset < 0 or offset > layout.MAX_INT64 - base_offset:
                fault = faults.OFFSET
                break
            offset += base_offset
            own_timestamp = -1 if own_magic == 0 else buffers.int64(p, pos + 18)
            at = pos + header_bytes - 8
            key_length = buffers.int32(p, at)
            at += 4
            key_position = at
            if key_length < 0:
                key_length = -1
            else:
                if key_length > message_end - at - 4:
                    fault = faults.KEY_SIZE
                    break
                at += key_length
            value_length = buffers.int32(p, at)
            at += 4
            if value_length < 0:
                value_length = -1
            elif value_length > message_end - at:
                fault = faults.VALUE_SIZE
                break
            messages += 1
            pos = message_end

            timestamp = own_timestamp
            if magic == 0:
                timestamp = -1
            elif timestamp_type == 1 and own_magic == 1:
                timestamp = append_time
            if rows.bounded:
                if offset < rows.min_offset or offset > rows.last_offset:
                    continue
                if rows.timed:
                    if timestamp == -1:
                        without_timestamp += 1
                        continue
                    if timestamp < rows.min_timestamp or timestamp > rows.last_timestamp:
                        continue
            rows.offset[row] = offset
            rows.timestamp[row] = timestamp
            rows.create_time[row] = -1 if timestamp_type == 1 and not nested else own_timestamp
            rows.key_position[row] = key_position
            rows.key_length[row] = key_length
            rows.value_position[row] = at
            rows.value_length[row] = value_length
            rows.headers_position[row] = at
            rows.header_count[row] = 0
            row += 1
    if fault < 0:
        rows.fault_position = pos
        return fault
    rows.count_in(row, source, timestamp_type)
    rows.scanned += messages
    rows.without_timestamp += without_timestamp
    return row - first_row
