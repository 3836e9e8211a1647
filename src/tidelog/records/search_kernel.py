"""The search kernel: from an index entry's place to the first record that a search by time asks for, in one call.

What `storage.segment.segment_reader` does step by step (walk batches, take the first that is late enough, look into it), for what
nearly every search meets: whole v2 batches, and in the end one that is not compressed and has CreateTime. For anything else it
answers None, and the steps tell what is there, or what is wrong. So every rule has one place that tells.

    batch     magic 2, whole, offsets that are not negative; the first one holds the entry's offset
    match     last offset and largest timestamp reach what is asked for; no codec, CreateTime; checksum right
    record    the first one with at least that timestamp and that offset

Like `kernel` this is one file in Cython's pure-Python mode; interpreted it finds nothing: it would be no faster than the steps.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.build_stamp import TIDELOG_SOURCE_CRC
    from cython.cimports.tidelog.records.native import tidelog_checksums_init, tidelog_crc32c

    from tidelog.records.build_stamp import check_source

    check_source(__name__, __file__, TIDELOG_SOURCE_CRC)
    tidelog_checksums_init()

COMPILED: bool = cython.compiled

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 61)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, 12)
_CODEC_AND_TYPE = cython.declare(cython.int, 0x0F)
_INT64_MAX = cython.declare(cython.longlong, 2**63 - 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _get(data: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """Return the signed big-endian number of `size` bytes at `at`."""
    raw: cython.ulonglong = 0
    i: cython.int
    for i in range(size):
        raw = raw << 8 | data[at + i]
    if size < 8 and data[at] & 0x80:
        return cython.cast(cython.longlong, raw) - (cython.cast(cython.longlong, 1) << 8 * size)
    return cython.cast(cython.longlong, raw)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_end(
    data: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where the varint at `at` ends; -1 if it does not within ten bytes and before `end`."""
    i: cython.Py_ssize_t
    for i in range(at, min(end, at + 10)):
        if data[i] < 0x80:
            return i + 1
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(data: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Return the zig-zag number in `data[at:end]`."""
    raw: cython.ulonglong = 0
    i: cython.Py_ssize_t = end
    while i > at:
        i -= 1
        raw = raw << 7 | data[i] & 0x7F
    return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)


@cython.boundscheck(False)
@cython.wraparound(False)
def first_match(
    data: cython.const[cython.uchar][::1],
    entry_offset: cython.longlong,
    offset: cython.longlong,
    timestamp: cython.longlong,
    min_offset: cython.longlong,
) -> tuple | None:
    """Return (offset, timestamp, leader epoch) of the record, None if it is not found this way.

    `data` begins where an index entry of `entry_offset` points to (-1: at a segment's start); `offset` is where the search
    begins, `timestamp` in ms, and no record below `min_offset` counts.
    """
    if not cython.compiled:
        return None
    size: cython.Py_ssize_t = len(data)
    if size < _HEADER_BYTES:
        return None
    p: cython.pointer(cython.const[cython.uchar]) = cython.address(data[0])
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = 0
    length: cython.longlong
    base: cython.longlong
    delta: cython.longlong
    found_offset: cython.longlong = -1
    found_timestamp: cython.longlong = 0
    epoch: cython.longlong = 0
    with cython.nogil:
        while at + _HEADER_BYTES <= size:
            base = _get(p, at, 8)
            length = _get(p, at + 8, 4)
            delta = _get(p, at + 23, 4)
            if p[at + 16] != 2 or length + _LOG_OVERHEAD < _HEADER_BYTES or base < 0 or delta < 0 or base > _INT64_MAX - delta:
                break
            if at == 0 and entry_offset >= 0 and not (base <= entry_offset <= offset):
                break
            end = at + _LOG_OVERHEAD + length
            if base + delta < offset or _get(p, at + 35, 8) < timestamp:
                at = end
                continue
            if end > size or p[at + 22] & _CODEC_AND_TYPE:
                break
            if _get(p, at + 17, 4) != cython.cast(cython.int, tidelog_crc32c(0, p + at + 21, end - at - 21)):
                break
            epoch = _get(p, at + 12, 4)
            found_offset = _first_record(
                p,
                at + _HEADER_BYTES,
                end,
                _get(p, at + 57, 4),
                base,
                delta,
                _get(p, at + 27, 8),
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
    """Return the offset of the first record that is late enough, -1 if there is none or something is wrong."""
    body: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    after: cython.Py_ssize_t
    length: cython.longlong
    time_delta: cython.longlong
    offset_delta: cython.longlong
    while count > 0:
        count -= 1
        body = _varint_end(p, at, end)
        if body < 0:
            return -1
        length = _varint(p, at, body)
        if length < 1 or length > end - body:
            return -1
        record_end = body + length
        at = body + 1  # attributes
        after = _varint_end(p, at, record_end)
        if after < 0:
            return -1
        time_delta = _varint(p, at, after)
        at = after
        after = _varint_end(p, at, record_end)
        if after < 0:
            return -1
        offset_delta = _varint(p, at, after)
        if offset_delta < 0 or offset_delta > last_delta:
            return -1
        if time_delta > 0 and base_timestamp > _INT64_MAX - time_delta:
            return -1
        if base_timestamp + time_delta >= timestamp and base + offset_delta >= min_offset:
            found_timestamp[0] = base_timestamp + time_delta
            return base + offset_delta
        at = record_end
    return -1
