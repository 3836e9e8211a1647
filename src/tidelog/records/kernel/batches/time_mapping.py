"""Collects times for a time map: the timestamps of whole batches, and the holes between them.

Only `formats.time_map_builder` calls this.
"""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from cython.cimports.tidelog.records.kernel.rows.rows import Rows
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout, varints
    from tidelog.records.kernel.rows.rows import Rows

build_stamp.check(__name__, __file__)


def map_batches(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    block_bytes: cython.longlong,
    state: cython.longlong[::1],
    times: cython.longlong[::1],
) -> tuple:
    """Add whole v2 batches, from `data[start]` on, to a block of a time map. Return (the position reached, the reason for
    stopping).

    The reason is 0 at `end`, and before a batch that this function does not handle: a different format, a compressed batch whose
    header does not have all times, or a faulty batch. It is 1 if the block has reached `block_bytes`, so that the next batch
    begins a new block. Otherwise it is the number of entries that `times` needs for the next batch. The caller verifies
    checksums; records are parsed only up to their timestamps. `formats.time_map_builder` defines the eleven numbers in `state`.
    """
    if not 0 <= start <= end <= len(data) or len(state) != 11:
        raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes, or the state does not have 11 numbers")
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    now: cython.p_longlong = buffers.longs(state)
    noted: cython.p_longlong = buffers.longs(times)
    room: cython.Py_ssize_t = len(times)
    why: cython.longlong = 0
    pos: cython.Py_ssize_t = start
    at: cython.Py_ssize_t
    batch_end: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    row: cython.Py_ssize_t
    length: cython.longlong
    attributes: cython.int
    base_offset: cython.longlong
    last_delta: cython.longlong
    base_timestamp: cython.longlong
    min_time_delta: cython.longlong
    max_time_delta: cython.longlong
    count: cython.longlong
    i: cython.longlong
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    timestamp: cython.longlong
    without: cython.longlong
    with cython.nogil:
        while end - pos >= 61:
            if now[4] >= 0 and now[0] - now[4] >= block_bytes:
                why = 1
                break
            length = buffers.int32(p, pos + 8)
            if p[pos + 16] != 2 or length < 49 or length > end - pos - 12:
                break
            batch_end = pos + 12 + length
            base_offset = buffers.int64(p, pos)
            last_delta = buffers.int32(p, pos + 23)
            if base_offset < now[1] or last_delta < 0 or base_offset > layout.MAX_INT64 - 1 - last_delta:
                break
            attributes = p[pos + 22]
            count = buffers.int32(p, pos + 57)
            if count < 0 or (now[4] >= 0 and now[8] + count > 2147483647):
                break
            row = now[10]
            without = 0
            if attributes & 32:
                count = 0  # control records are not data
            elif attributes & 8:
                timestamp = buffers.int64(p, pos + 35)
                if timestamp == -1:
                    break
                if count > 0:
                    if row >= room:
                        why = row + 1
                        break
                    noted[row] = timestamp
                    row += 1
            elif attributes & 7 or count > (batch_end - pos - 61) // layout.MIN_RECORD_BYTES:
                break
            else:
                if count > room - row:
                    why = row + count
                    break
                base_timestamp = buffers.int64(p, pos + 27)
                min_time_delta = layout.MIN_INT64 - base_timestamp if base_timestamp < 0 else layout.MIN_INT64
                max_time_delta = layout.MAX_INT64 - base_timestamp if base_timestamp > 0 else layout.MAX_INT64
                at = pos + 61
                i = 0
                while i < count:
                    if at >= batch_end:
                        break
                    value = p[at]
                    if value < 128:
                        at += 1
                    elif at + 1 < batch_end and p[at + 1] < 128:
                        value = (value & 127) | p[at + 1] << 7
                        at += 2
                    else:
                        packed = varints.read(p, at, batch_end)
                        if packed & 15 == 0:
                            break
                        at += packed & 15
                        value = packed >> 4
                    value = (value >> 1) ^ -(value & 1)
                    if value < 0 or value > batch_end - at:
                        break
                    record_end = at + value
                    at += 1  # attributes
                    if at >= record_end:
                        break
                    value = p[at]
                    if value < 128:
                        value = (value >> 1) ^ -(value & 1)
                    else:
                        size = varints.long_size(p, at, record_end)
                        if size < 0:
                            break
                        value = varints.long_value(p, at, size)
                    if value < min_time_delta or value > max_time_delta:
                        break
                    timestamp = base_timestamp + value
                    if timestamp == -1:
                        without += 1
                    else:
                        noted[row] = timestamp
                        row += 1
                    at = record_end
                    i += 1
                if i < count or at != batch_end:
                    break
            if now[4] < 0:
                now[4] = now[0]
                now[5] = base_offset
            now[6] = now[0] - now[4]
            now[8] += count
            now[9] += without
            now[10] = row
            now[2] = base_offset
            now[3] = buffers.uint32(p, pos + 17)
            now[0] += batch_end - pos
            now[1] = base_offset + last_delta + 1
            pos = batch_end
    return (pos, why)


def note_timestamps(rows: Rows, times: cython.longlong[::1], at: cython.Py_ssize_t) -> int:
    """Copy the timestamps of all rows that have one to `times[at:]`. Return the number of timestamps."""
    if not 0 <= at <= len(times) - rows.count:
        raise ValueError(f"there is no room for {rows.count} rows at {at} of {len(times)}")
    timestamps: cython.p_longlong = rows.timestamp
    noted: cython.p_longlong = buffers.longs(times)
    end: cython.Py_ssize_t = at
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(rows.count):
            if timestamps[row] != -1:
                noted[end] = timestamps[row]
                end += 1
    return end - at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sort(p: cython.p_longlong, scratch: cython.p_longlong, count: cython.Py_ssize_t) -> cython.void:
    """Sort `p[:count]` in ascending order by a radix sort of the distances from the smallest. `scratch` has 256 entries more."""
    smallest: cython.longlong = layout.MAX_INT64
    largest: cython.longlong = layout.MIN_INT64
    previous: cython.longlong = layout.MIN_INT64
    in_order: cython.bint = True
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    shift: cython.int = 0
    byte: cython.int
    passed: cython.longlong
    distance: cython.ulonglong
    for i in range(count):
        if p[i] < previous:
            in_order = False
        previous = p[i]
        smallest = min(smallest, previous)
        largest = max(largest, previous)
    if in_order:
        return
    # An unsigned 64-bit number holds any distance.
    while shift < 64 and (cython.cast(cython.ulonglong, largest) - cython.cast(cython.ulonglong, smallest)) >> shift > 0:
        for byte in range(256):
            scratch[count + byte] = 0
        for i in range(count):
            distance = cython.cast(cython.ulonglong, p[i]) - cython.cast(cython.ulonglong, smallest)
            scratch[count + (distance >> shift & 255)] += 1
        passed = 0
        for byte in range(256):
            passed += scratch[count + byte]
            scratch[count + byte] = passed - scratch[count + byte]
        for i in range(count):
            distance = cython.cast(cython.ulonglong, p[i]) - cython.cast(cython.ulonglong, smallest)
            at = count + (distance >> shift & 255)
            scratch[scratch[at]] = p[i]
            scratch[at] += 1
        for i in range(count):
            p[i] = scratch[i]
        shift += 8


def time_bounds(times: cython.longlong[::1], count: cython.Py_ssize_t, most_holes: cython.Py_ssize_t) -> tuple:
    """Sort `times[:count]` and return (smallest, largest, holes). Without times, these are 2^63 - 1, -2^63 and no holes.

    A hole is a gap between consecutive times that is wider than an eighth of the shortest span with half of all times. Evenly
    spaced times have no holes; late records cause them. At most `most_holes` are returned, the widest ones. `holes` is an array
    with the times before and after each hole, ascending.
    """
    if not 0 <= count <= len(times):
        raise ValueError(f"cannot sort {count} of {len(times)} times")
    holes = array("q")
    if count == 0:
        return (layout.MAX_INT64, layout.MIN_INT64, holes)
    p: cython.p_longlong = buffers.longs(times)
    half: cython.Py_ssize_t = (count - 1) // 2
    found: cython.Py_ssize_t
    i: cython.Py_ssize_t
    gap: cython.longlong
    if cython.compiled:
        scratch = buffers.new_bytes(8 * (count + 256))
        scratch_view = memoryview(scratch).cast("q")
        q: cython.p_longlong = buffers.longs(scratch_view)
        with cython.nogil:
            _sort(p, q, count)
    else:
        p[:count] = array("q", sorted(p[:count]))
    smallest: cython.longlong = p[0]
    largest: cython.longlong = p[count - 1]
    if smallest < 0 and largest > layout.MAX_INT64 + smallest:
        return (smallest, largest, holes)
    least: cython.longlong = largest - smallest
    with cython.nogil:
        for i in range(count - half):
            gap = p[i + half] - p[i]
            if gap < least:
                least = gap
        least >>= 3
        while True:
            found = 0
            for i in range(1, count):
                if p[i] - p[i - 1] > least:
                    found += 1
            if found <= most_holes:
                break
            # Times may be up to 2^63 - 1 ms apart; no gap is wider.
            least = layout.MAX_INT64 if least > layout.MAX_INT64 - (least >> 1) - 1 else least + (least >> 1) + 1
    for i in range(1, count):
        if p[i] - p[i - 1] > least:
            holes.append(p[i - 1])
            holes.append(p[i])
    return (smallest, largest, holes)
