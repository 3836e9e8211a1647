"""Builds a coordinator's batch in one call: a few uncompressed records with the same timestamp.

The bytes are the same as from `records.builder`. The result is None, and the caller uses `records.builder`, if there are no
entries, more than a mebibyte, a negative time, or a transaction without a producer. Interpreted, it is always None.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints

build_stamp.check(__name__, __file__)
crc.prepare()

_MOST_BYTES = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.cfunc
@cython.inline
def _put_bytes(out: cython.p_uchar, at: cython.Py_ssize_t, part: object) -> cython.Py_ssize_t:
    """Write a length and the bytes, or the length of null."""
    if part is None:
        return varints.put(out, at, -1)
    size: cython.Py_ssize_t = len(part)
    at = varints.put(out, at, size)
    return buffers.copy(out, at, cython.cast(cython.p_uchar, cython.cast(cython.p_char, cython.cast(bytes, part))), 0, size)


def build_state_batch(
    entries: list,
    timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_sequence: cython.longlong,
    is_transactional: cython.bint,
) -> bytearray | None:
    """Return a v2 batch at offset 0 of pairs of key and value (bytes, or None for null) with one CreateTime in ms."""
    if not cython.compiled:
        return None
    count: cython.Py_ssize_t = len(entries)
    if count == 0 or timestamp < 0 or (is_transactional and producer_id < 0):
        return None
    size: cython.Py_ssize_t = layout.HEADER_BYTES
    key: bytes
    value: bytes
    for key, value in entries:
        size += 30 + (0 if key is None else len(key)) + (0 if value is None else len(value))
    if size > _MOST_BYTES:
        return None
    batch: bytearray = bytearray(size)
    out: cython.p_uchar = buffers.output(batch)
    at: cython.Py_ssize_t = layout.HEADER_BYTES
    body: cython.longlong
    length: cython.longlong
    i: cython.longlong = 0
    for key, value in entries:
        body = 3 + varints.size(i)  # Attributes, time, and the number of headers.
        length = -1 if key is None else len(key)
        body += varints.size(length) + (length if length > 0 else 0)
        length = -1 if value is None else len(value)
        body += varints.size(length) + (length if length > 0 else 0)
        at = varints.put(out, at, body)
        out[at] = out[at + 1] = 0
        at = varints.put(out, at + 2, i)
        at = _put_bytes(out, at, key)
        at = _put_bytes(out, at, value)
        out[at] = 0
        at += 1
        i += 1
    buffers.put(out, 8, 4, at - layout.LOG_OVERHEAD)
    buffers.put(out, 12, 4, -1)
    out[16] = 2
    buffers.put(out, 21, 2, layout.TRANSACTIONAL_BIT if is_transactional else 0)
    buffers.put(out, 23, 4, count - 1)
    buffers.put(out, 27, 8, timestamp)
    buffers.put(out, 35, 8, timestamp)
    buffers.put(out, 43, 8, producer_id)
    buffers.put(out, 51, 2, producer_epoch)
    buffers.put(out, 53, 4, base_sequence)
    buffers.put(out, 57, 4, count)
    with cython.nogil:
        body = crc.crc32c(out, 21, at, 0)
    buffers.put(out, 17, 4, body)
    del batch[at:]
    return batch
