"""Walks the batch headers of an open `.log` with one `pread` for each batch, to check a time index.

The walk does what `formats.batch_walk.iter_times` does step by step, for whole v2 batches, which nearly every log consists of. It
stops before any other batch, which `iter_times` then handles. So each error is raised in one place.

Interpreted, it follows no batch: it would be no faster than `iter_times`.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.posix.unistd import pread
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout

build_stamp.check(__name__, __file__)

_TIMED_BYTES = cython.declare(cython.Py_ssize_t, 43)
"""The end of the largest timestamp in a header."""
_FAR_BYTES = cython.declare(cython.Py_ssize_t, 4096)
"""For batches of at least this size, only the headers are read."""


@cython.boundscheck(False)
@cython.wraparound(False)
def walk_times(
    fd: cython.int,
    position: cython.longlong,
    end_position: cython.longlong,
    min_offset: cython.longlong,
    latest: cython.longlong,
    ends: cython.longlong[::1],
    times: cython.longlong[::1],
) -> tuple:
    """Follow the batches in [position, end_position) of an open file; return their number, and the offset after them.

    Each batch's end goes into `ends`, the largest timestamp so far (ms; initially `latest`) into `times`; the walk stops when
    these are full. It also stops before bytes that are not a v2 batch, an offset below the previous one, and a batch that reaches
    beyond the end; the caller handles these and raises the error. Checksums are not verified.
    """
    if not cython.compiled:
        return 0, min_offset
    chunk = cython.declare(cython.uchar[32768])
    start: cython.longlong = 0
    have: cython.Py_ssize_t = 0
    want: cython.Py_ssize_t = 4096
    size: cython.longlong
    base: cython.longlong
    last: cython.longlong
    count: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = min(len(ends), len(times))
    p: cython.pointer(cython.const[cython.uchar])
    with cython.nogil:
        while count < room and position + _TIMED_BYTES <= end_position:
            if position + _TIMED_BYTES > start + have:
                have = pread(fd, cython.cast(cython.p_void, chunk), min(want, end_position - position), position)
                start = position
                if have < _TIMED_BYTES:
                    break
            p = cython.cast(cython.pointer(cython.const[cython.uchar]), chunk) + (position - start)
            base = buffers.int64(p, 0)
            size = layout.LOG_OVERHEAD + buffers.int32(p, 8)
            last = buffers.int32(p, 23)
            if p[16] != 2 or size < layout.HEADER_BYTES or last < 0 or base < 0 or base > layout.MAX_INT64 - 1 - last:
                break
            if base < min_offset or position + size > end_position:
                break
            min_offset = base + last + 1
            position += size
            latest = max(latest, buffers.int64(p, 35))
            ends[count] = position
            times[count] = latest
            count += 1
            want = 64 if size >= _FAR_BYTES else 32768
    return count, min_offset
