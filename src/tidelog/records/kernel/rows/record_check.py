"""Checks a producer's v2 batch record by record, as a leader does, and stores nothing."""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout, record_headers, varints
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout, record_headers, varints

build_stamp.check(__name__, __file__)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_end(
    data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the end of the varint at `pos` if it has one or two bytes; -1 if it is longer or truncated."""
    if pos < end:
        if data[pos] < 128:
            return pos + 1
        if pos + 1 < end and data[pos + 1] < 128:
            return pos + 2
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_value(
    data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    value: cython.longlong = data[pos]
    if end - pos == 2:
        value = (value & 127) | data[pos + 1] << 7
    return (value >> 1) ^ -(value & 1)


def check_records_v2(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    min_timestamp: cython.longlong,
    last_timestamp: cython.longlong,
    needs_keys: cython.bint,
    refused: object,
) -> tuple:
    """Check the records of a v2 batch, which are decompressed in `data[start:end]`, as a leader does before it appends them.

    Returns (number of refused records, max timestamp, whether the offset deltas are 0, 1, 2..., whether the records are plain),
    or (fault code, position, False, False) for records that cannot be read. `scan_records_v2` can read exactly the records that
    pass here with deltas in order. Plain records have no attributes and no timestamp below -1, and the first timestamp equals the
    base timestamp: a rebuilt batch would be identical.

    A record is refused if it lacks a key and `needs_keys` is set, or if its timestamp is outside of [`min_timestamp`,
    `last_timestamp`] and not -1. `refused`, an array of int64 or None, gets three entries for each refused record: its index in
    the batch, 1 (key) or 2 (timestamp), and its timestamp.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
    if count < 0:
        return (faults.NEGATIVE_COUNT, start, False, False)
    if count > (end - start) // layout.MIN_RECORD_BYTES:
        return (faults.NO_ROOM, start, False, False)
    listed: cython.p_longlong
    room: cython.Py_ssize_t = 0
    if cython.compiled:
        listed = cython.NULL
    if refused is not None:
        listed = buffers.longs(refused)
        room = len(refused) // 3
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    min_time_delta: cython.longlong = layout.MIN_INT64 - base_timestamp if base_timestamp < 0 else layout.MIN_INT64
    max_time_delta: cython.longlong = layout.MAX_INT64 - base_timestamp if base_timestamp > 0 else layout.MAX_INT64

    fault: cython.Py_ssize_t = 0
    refusals: cython.Py_ssize_t = 0
    reason: cython.int
    in_order: cython.bint = True
    is_plain: cython.bint = True
    max_timestamp: cython.longlong = -1
    pos: cython.Py_ssize_t = start
    record: cython.Py_ssize_t = start
    record_end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    i: cython.Py_ssize_t = 0
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    time_delta: cython.longlong
    timestamp: cython.longlong
    key_length: cython.longlong

    # As in `scan_records_v2`: for varints of one or two bytes, positions follow from predicted branches.
    with cython.nogil:
        while i < count:
            record = pos
            if pos >= end:
                fault = faults.TOO_FEW
                break
            at = _short_end(p, pos, end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
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
            if pos < record_end and p[pos] != 0:
                is_plain = False
            pos += 1  # attributes: unused so far

            at = _short_end(p, pos, record_end)
            if at > 0:
                time_delta = _short_value(p, pos, at)
                pos = at
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

            at = _short_end(p, pos, record_end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                value = (value >> 1) ^ -(value & 1)
            if value != i:
                in_order = False

            at = _short_end(p, pos, record_end)
            if at > 0:
                key_length = _short_value(p, pos, at)
                pos = at
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                key_length = (value >> 1) ^ -(value & 1)
            if key_length > 0:
                if key_length > record_end - pos:
                    fault = faults.KEY_SIZE
                    break
                pos += key_length

            at = _short_end(p, pos, record_end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                value = (value >> 1) ^ -(value & 1)
            if value > 0:
                if value > record_end - pos:
                    fault = faults.VALUE_SIZE
                    break
                pos += value

            if pos < record_end and p[pos] == 0:
                pos += 1
            else:
                packed = varints.read(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                pos = record_headers.skip(p, pos, record_end, (value >> 1) ^ -(value & 1))
                if pos < 0:
                    fault = pos
                    break
            if pos != record_end:
                fault = faults.SIZE_MISMATCH
                break

            timestamp = base_timestamp + time_delta
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if timestamp < -1 or (i == 0 and time_delta != 0):
                is_plain = False
            reason = 0
            if needs_keys and key_length < 0:
                reason = 1
            elif (timestamp < min_timestamp or timestamp > last_timestamp) and timestamp != -1:
                reason = 2
            if reason > 0:
                if refusals < room:
                    listed[3 * refusals] = i
                    listed[3 * refusals + 1] = reason
                    listed[3 * refusals + 2] = timestamp
                refusals += 1
            i += 1
        else:
            if pos != end:
                record = pos
                fault = faults.TRAILING
    if fault < 0:
        return (fault, record, False, False)
    return (refusals, max_timestamp, in_order, is_plain)
