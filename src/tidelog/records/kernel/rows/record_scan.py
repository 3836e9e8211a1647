"""Decodes the records of a v2 batch into rows, in one pass over the decompressed bytes.

A v2 record (spec §10.1); varint is zig-zag, 7 bits a byte, at most 5 bytes (varlong: 10)::

    varint length of what follows | int8 attributes, unused | varlong timestamp delta | varint offset delta
    varint key length, -1 null | key | varint value length, -1 null | value
    varint header count | per header: varint key length | key | varint value length, -1 null | value
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout, record_headers, varints
    from cython.cimports.tidelog.records.kernel.rows.rows import Rows
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout, record_headers, varints
    from tidelog.records.kernel.rows.rows import Rows

build_stamp.check(__name__, __file__)


def scan_plain_batches(
    rows: Rows, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Scan the records of whole plain batches, from `data[start]` on. Return the position of the first batch that was not
    scanned, or `end`.

    A batch is not scanned if it has an old format, is compressed, is a control batch, or is faulty. The caller verifies
    checksums.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    pos: cython.Py_ssize_t = start
    size: cython.longlong
    base_offset: cython.longlong
    delta: cython.longlong
    attributes: cython.int
    while end - pos >= layout.HEADER_BYTES:
        size = buffers.int32(p, pos + 8) + layout.LOG_OVERHEAD
        attributes = p[pos + 22]
        if p[pos + 16] != 2 or attributes & 7 or attributes & layout.CONTROL_BIT or not layout.HEADER_BYTES <= size <= end - pos:
            break
        base_offset = buffers.int64(p, pos)
        delta = buffers.int32(p, pos + 23)
        if base_offset < 0 or delta < 0 or base_offset > layout.MAX_INT64 - delta:
            break
        if (
            scan_records_v2(
                rows,
                data,
                pos + layout.HEADER_BYTES,
                pos + size,
                buffers.int32(p, pos + 57),
                base_offset,
                base_offset + delta,
                buffers.int64(p, pos + 27),
                buffers.int64(p, pos + 35),
                1 if attributes & 8 else 0,
                0,
                layout.NO_LIMIT,
            )
            < 0
        ):
            break
        pos += size
    return pos


@cython.ccall
def scan_records_v2(
    rows: Rows,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    batch_last_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_time: cython.longlong,
    timestamp_type: cython.int,
    source: cython.int,
    limit: cython.longlong,
) -> cython.longlong:
    """Append the records of a v2 batch, which are decompressed in `data[start:end]`, to `rows`. Return their number, or a fault
    code.

    `append_time` is every record's timestamp if `timestamp_type` is 1 (LogAppendTime). `source` is stored with each row. The
    whole batch is validated: it has `count` records, each with the length that it states and an offset from `base_offset` to
    `batch_last_offset`, and nothing after them. A scan that reaches `limit` rows stops there without validating the rest
    (`NO_LIMIT`: no limit).
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
    rows.fault_position = start
    if base_offset < 0:
        return faults.OFFSET
    if count < 0:
        return faults.NEGATIVE_COUNT
    if count > (end - start) // layout.MIN_RECORD_BYTES:
        return faults.NO_ROOM
    if start == end or limit <= 0:
        return 0
    rows.reserve(min(count, limit))

    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    offsets: cython.p_longlong = rows.offset
    timestamps: cython.p_longlong = rows.timestamp
    create_times: cython.p_longlong = rows.create_time
    key_positions: cython.p_int = rows.key_position
    key_lengths: cython.p_int = rows.key_length
    value_positions: cython.p_int = rows.value_position
    value_lengths: cython.p_int = rows.value_length
    headers_positions: cython.p_int = rows.headers_position
    header_counts: cython.p_int = rows.header_count
    positions: cython.bint = rows.positions
    bounded: cython.bint = rows.bounded
    timed: cython.bint = rows.timed
    min_timestamp: cython.longlong = rows.min_timestamp
    last_timestamp: cython.longlong = rows.last_timestamp
    min_offset: cython.longlong = rows.min_offset
    last_offset: cython.longlong = rows.last_offset
    # Larger deltas would overflow int64 for a timestamp, or leave the header's range for an offset.
    min_time_delta: cython.longlong = layout.MIN_INT64 - base_timestamp if base_timestamp < 0 else layout.MIN_INT64
    max_time_delta: cython.longlong = layout.MAX_INT64 - base_timestamp if base_timestamp > 0 else layout.MAX_INT64
    max_offset_delta: cython.longlong = batch_last_offset - base_offset

    fault: cython.int = 0
    without_timestamp: cython.longlong = 0
    first_row: cython.Py_ssize_t = rows.count
    end_row: cython.Py_ssize_t = first_row + limit
    row: cython.Py_ssize_t = first_row
    pos: cython.Py_ssize_t = start
    record: cython.Py_ssize_t = start
    record_end: cython.Py_ssize_t
    i: cython.Py_ssize_t = 0
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    time_delta: cython.longlong
    timestamp: cython.longlong
    create_time: cython.longlong
    offset: cython.longlong
    key_position: cython.Py_ssize_t
    key_length: cython.longlong
    value_position: cython.Py_ssize_t
    value_length: cython.longlong
    header_count: cython.longlong
    headers_position: cython.Py_ssize_t

    # Varints of one or two bytes, nearly all of them, are decoded inline: the next position then depends on a predicted branch,
    # not on loaded data.
    with cython.nogil:
        while i < count:
            record = pos
            # length
            if pos >= end:
                fault = faults.TOO_FEW
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = varints.read(p, pos, end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value = (value >> 1) ^ -(value & 1)
            if value < 0 or value > end - pos:
                fault = faults.RECORD_SIZE
                break
            record_end = pos + value
            pos += 1  # attributes: unused so far

            # timestamp delta
            if pos >= record_end:
                fault = faults.CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
                time_delta = (value >> 1) ^ -(value & 1)
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                time_delta = (value >> 1) ^ -(value & 1)
                pos += 2
            else:
                size = varints.long_size(p, pos, record_end)
                if size < 0:
                    fault = size
                    break
                time_delta = varints.long_value(p, pos, size)
                pos += size
            if time_delta < min_time_delta or time_delta > max_time_delta:
                fault = faults.TIMESTAMP
                break

            # offset delta
            if pos >= record_end:
                fault = faults.CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value = (value >> 1) ^ -(value & 1)
            if value < 0 or value > max_offset_delta:
                fault = faults.OFFSET
                break
            offset = base_offset + value

            # key
            if pos >= record_end:
                fault = faults.CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            key_length = (value >> 1) ^ -(value & 1)
            key_position = pos
            if key_length < 0:
                key_length = -1
            else:
                if key_length > record_end - pos:
                    fault = faults.KEY_SIZE
                    break
                pos += key_length

            # value
            if pos >= record_end:
                fault = faults.CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value_length = (value >> 1) ^ -(value & 1)
            value_position = pos
            if value_length < 0:
                value_length = -1
            else:
                if value_length > record_end - pos:
                    fault = faults.VALUE_SIZE
                    break
                pos += value_length

            # headers: most records have none, which is one zero byte
            if pos >= record_end:
                fault = faults.CUT_OFF
                break
            value = p[pos]
            headers_position = pos + 1
            if value == 0:
                header_count = 0
                pos += 1
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                headers_position = pos
                value = packed >> 4
                header_count = (value >> 1) ^ -(value & 1)
                pos = record_headers.skip(p, pos, record_end, header_count)
                if pos < 0:
                    fault = pos
                    break
            if pos != record_end:
                fault = faults.SIZE_MISMATCH
                break
            pos = record_end
            i += 1

            create_time = base_timestamp + time_delta
            timestamp = append_time if timestamp_type == 1 else create_time
            if bounded:
                if offset < min_offset or offset > last_offset:
                    continue
                if timed:
                    if timestamp == -1:
                        without_timestamp += 1
                        continue
                    if timestamp < min_timestamp or timestamp > last_timestamp:
                        continue
            offsets[row] = offset
            timestamps[row] = timestamp
            create_times[row] = create_time
            if positions:
                key_positions[row] = key_position
                key_lengths[row] = key_length
                value_positions[row] = value_position
                value_lengths[row] = value_length
                headers_positions[row] = headers_position
                header_counts[row] = header_count
            row += 1
            if row == end_row:
                break
        else:
            if pos != end:
                record = pos
                fault = faults.TRAILING
    if fault < 0:
        rows.fault_position = record
        return fault
    rows.count_in(row, source, timestamp_type)
    rows.scanned += i
    rows.without_timestamp += without_timestamp
    return row - first_row
