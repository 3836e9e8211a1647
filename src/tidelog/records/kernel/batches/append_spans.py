"""Determines which of many batches get an index entry, and sums up the batches in between."""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout

build_stamp.check(__name__, __file__)

_MIN_BATCH_BYTES = cython.declare(cython.Py_ssize_t, 26)


def append_spans(data: cython.const[cython.uchar][::1], since: cython.longlong, interval: cython.longlong) -> tuple[array, int]:
    """Divide whole batches of any format into spans. Return three numbers for each span, and the last batch's last offset.

    The three numbers are the span's size in bytes, the last offset of its first batch with the span's largest timestamp, and that
    timestamp (ms). The first batch is a separate span, and so is each batch that gets an index entry: one that begins more than
    `interval` bytes after the previous batch with an entry. `since` is that distance at the start of `data`. Checksums are not
    verified. Raises ValueError if `data` does not consist of whole batches.
    """
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        raise ValueError("there are no batches")
    most: cython.longlong = min(length // _MIN_BATCH_BYTES, (since + length) // (max(interval, 0) + 1) + 1)
    # Each entry may have a span before it; then the first batch, and the rest.
    found = array("q", bytes(8 * 3 * (2 * most + 3)))
    spans: cython.p_longlong = buffers.longs(found)
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    pos: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = -3
    size: cython.longlong
    last: cython.longlong = -1
    timestamp: cython.longlong
    is_alone: cython.bint = True
    with cython.nogil:
        while length - pos >= _MIN_BATCH_BYTES:
            size = layout.LOG_OVERHEAD + buffers.int32(p, pos + 8)
            if size < (layout.HEADER_BYTES if p[pos + 16] == 2 else 26 + 8 * (p[pos + 16] == 1)) or size > length - pos:
                break
            last = buffers.int64(p, pos)
            timestamp = -1
            if p[pos + 16] == 2:
                last += buffers.int32(p, pos + 23)
                timestamp = buffers.int64(p, pos + 35)
            elif p[pos + 16] == 1:
                timestamp = buffers.int64(p, pos + 18)
            if since > interval:
                since = 0
                at += 3
                is_alone = True
            elif is_alone:
                at += 3
                is_alone = pos == 0
            elif timestamp > spans[at + 2]:
                spans[at + 1] = last
                spans[at + 2] = timestamp
            if spans[at] == 0:
                spans[at + 1] = last
                spans[at + 2] = timestamp
            spans[at] += size
            since += size
            pos += size
    if pos != length:
        raise ValueError(f"{length - pos} bytes follow the last whole batch")
    return found[: at + 3], last
