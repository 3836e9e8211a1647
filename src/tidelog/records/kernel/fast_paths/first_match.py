"""Finds the first record at or after a time in one call, from an index entry's position or from the indexes' entries.

This module does what `storage.segment.segment_reader` does step by step (walk batches, take the first that is late enough, search
it), for the common case: whole v2 batches, the matching one uncompressed and with CreateTime. For anything else it returns None,
and those steps find the record or raise the error. So each rule is reported in one place.

    batch     magic 2, whole, offsets not negative; the first batch holds the entry's offset
    match     last offset and largest timestamp reach the target; no codec, CreateTime; correct checksum
    record    the first one with at least the target timestamp and offset

Interpreted, it always returns None: it would be no faster than the steps.
"""

from __future__ import annotations

import os

import cython

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
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
    """Return (offset, timestamp, leader epoch) of the record, or None if `segment_reader` must search.

    `data` begins where the index entry with `entry_offset` points to (-1: at a segment's start). The search begins at `offset`;
    `timestamp` is in ms; records below `min_offset` do not count.
    """
    if not cython.compiled:
        return None
    return _match(buffers.input_bytes(data), len(data), entry_offset, offset, timestamp, min_offset)


def first_indexed_match(
    fd: cython.int,
    log_bytes: cython.longlong,
    read_bytes: cython.longlong,
    flags: cython.int,
    scratch: object,
    times: object,
    positions: object,
    base_offset: cython.longlong,
    timestamp: cython.longlong,
    min_offset: cython.longlong,
) -> tuple | None:
    """Look a time up in the entries of a time index and an offset index, read `read_bytes` of the `.log` `fd` from there, and
    return what `first_match` returns. Also return None if the bytes cannot be read at once.

    `flags` are those of `preadv`; the bytes go into `scratch`.
    """
    if not cython.compiled:
        return None
    view = cython.declare(Py_buffer)  # noqa: F821 - Cython has it built in.
    offset: cython.longlong = base_offset
    PyObject_GetBuffer(times, cython.address(view), PyBUF_SIMPLE)
    slot: cython.Py_ssize_t = _floor(cython.cast(cython.p_uchar, view.buf), view.len // 12, 12, timestamp)
    if slot >= 0:
        offset += buffers.int32(cython.cast(cython.p_uchar, view.buf), 12 * slot + 8)
    PyBuffer_Release(cython.address(view))
    offset = max(offset, min_offset)
    entry_offset: cython.longlong = -1
    position: cython.longlong = 0
    PyObject_GetBuffer(positions, cython.address(view), PyBUF_SIMPLE)
    slot = _floor(cython.cast(cython.p_uchar, view.buf), view.len // 8, 8, offset - base_offset)
    if slot >= 0:
        entry_offset = base_offset + buffers.int32(cython.cast(cython.p_uchar, view.buf), 8 * slot)
        position = buffers.int32(cython.cast(cython.p_uchar, view.buf), 8 * slot + 4)
    PyBuffer_Release(cython.address(view))
    length: cython.longlong = min(read_bytes, log_bytes - position)
    if length < layout.HEADER_BYTES or position < 0:
        return None
    chunk = scratch[:length]
    try:
        if os.preadv(fd, (chunk,), position, flags) != length:
            return None
    except OSError:
        return None
    PyObject_GetBuffer(chunk, cython.address(view), PyBUF_SIMPLE)
    try:
        return _match(
            cython.cast(cython.p_uchar, view.buf), view.len, entry_offset if position else -1, offset, timestamp, min_offset
        )
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
@cython.exceptval(check=False)
def _floor(p: cython.p_uchar, count: cython.Py_ssize_t, size: cython.int, value: cython.longlong) -> cython.Py_ssize_t:
    """Return the last of `count` entries of `size` bytes that begin with at most `value`, an int64 or, in 8 bytes, an int32."""
    low: cython.Py_ssize_t = 0
    middle: cython.Py_ssize_t
    while low < count:
        middle = (low + count) >> 1
        if (buffers.int64(p, middle * size) if size > 8 else buffers.int32(p, middle * size)) <= value:
            low = middle + 1
        else:
            count = middle
    return low - 1


@cython.cfunc
def _match(
    p: cython.pointer(cython.const[cython.uchar]),
    size: cython.Py_ssize_t,
    entry_offset: cython.longlong,
    offset: cython.longlong,
    timestamp: cython.longlong,
    min_offset: cython.longlong,
) -> tuple | None:
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
