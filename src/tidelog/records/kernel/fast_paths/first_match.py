"""From an index entry's position to the first matching record of a search by time, in one call.

It does what `storage.segment.segment_reader` does step by step (walk batches, take the first that is late enough, search it), for
the common case: whole v2 batches, the matching one uncompressed and with CreateTime. For anything else it returns None, and the
steps find the record or raise the error. So each rule is reported in one place.

    batch     magic 2, whole, offsets not negative; the first batch holds the entry's offset
    match     last offset and largest timestamp reach the target; no codec, CreateTime; correct checksum
    record    the first one with at least the target timestamp and offset

Interpreted, it always returns None: it would be no faster than the steps.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints

build_stamp.check(__name__, __file__)
crc.prepare()

COMPILED: bool = cython.compiled

_CODEC_AND_TYPE = cython.declare(cython.int, 0x0F)


@cython.boundscheck(False)
@cython.wraparound(False)
def first_match(
    data: cython.const[cython.uchar][::1],
    entry_offset: cython.longlong,
    offset: cython.longlong,
    timestamp: cython.longlong,
    min_offset: cython.longlong,
) -> tuple | None:
    """Return (offset, timestamp, leader epoch) of the record, or None if this way does not find it.

    `data` begins where the index entry with `entry_offset` points to (-1: at a segment's start). The search begins at `offset`;
    `timestamp` is in ms; records below `min_offset` do not count.
    """
    if not cython.compiled:
        return None
    size: cython.Py_ssize_t = len(data)
    if size < layout.HEADER_BYTES:
        return None
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = 0
    length: cython.longlong
    base: cython.longlong
    delta: cython.longlong
    found_offset: cython.longlong = -1
    found_timestamp: cython.longlong = 0
    epoch: cython.longlong = 0
    with cython.nogil:
        while at + layout.HEADER_BYTES <= size:
            base = buffers.int64(p, at)
            length = buffers.int32(p, at + 8)
            delta = buffers.int32(p, at + 23)
            if (
                p[at + 16] != 2
                or length + layout.LOG_OVERHEAD < layout.HEADER_BYTES
                or base < 0
                or delta < 0
                or base > layout.MAX_INT64 - delta
            ):
                break
            if at == 0 and entry_offset >= 0 and not (base <= entry_offset <= offset):
                break
            end = at + layout.LOG_OVERHEAD + length
            if base + delta < offset or buffers.int64(p, at + 35) < timestamp:
                at = end
                continue
            if end > size or p[at + 22] & _CODEC_AND_TYPE:
                break
            if crc.crc32c(p, at + 21, end, 0) != buffers.uint32(p, at + 17):
                break
            epoch = buffers.int32(p, at + 12)
            found_offset = _first_record(
                p,
                at + layout.HEADER_BYTES,
                end,
                buffers.int32(p, at + 57),
                base,
                delta,
                buffers.int64(p, at + 27),
                timestamp,
                min_offset,
                cython.address(found_timestamp),
            )
            break
    return (found_offset, found_timestamp, epoch) if found_offset >= 0 else None


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _first_record(
    p: cython.pointer(cython.const[cython.uchar]),
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base: cython.longlong,
    last_delta: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp: cython.longlong,
    min_offset: cython.longlong,
    found_timestamp: cython.pointer(cython.longlong),
) -> cython.longlong:
    """Return the offset of the first record that is late enough, -1 if there is none or the batch is damaged."""
    record_end: cython.Py_ssize_t
    size: cython.int
    length: cython.longlong
    time_delta: cython.longlong
    offset_delta: cython.longlong
    while count > 0:
        count -= 1
        size = varints.long_size(p, at, end)
        if size < 0:
            return -1
        length = varints.long_value(p, at, size)
        at += size
        if length < 1 or length > end - at:
            return -1
        record_end = at + length
        at += 1  # attributes
        size = varints.long_size(p, at, record_end)
        if size < 0:
            return -1
        time_delta = varints.long_value(p, at, size)
        at += size
        size = varints.long_size(p, at, record_end)
        if size < 0:
            return -1
        offset_delta = varints.long_value(p, at, size)
        if offset_delta < 0 or offset_delta > last_delta:
            return -1
        if time_delta > 0 and base_timestamp > layout.MAX_INT64 - time_delta:
            return -1
        if base_timestamp + time_delta >= timestamp and base + offset_delta >= min_offset:
            found_timestamp[0] = base_timestamp + time_delta
            return base + offset_delta
        at = record_end
    return -1
