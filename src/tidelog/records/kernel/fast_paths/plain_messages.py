"""Converts uncompressed v1 messages to v0: removes the timestamp, and computes a new checksum.

Followers and consumers of 0.9.0 request v0, and an uncompressed v1 log has a message for each record: an object per message would
cost more than its bytes. Plain messages are converted here in runs; anything else ends a run, and `records.conversion` converts
it or raises the error:

==============  ======================================================================================================
message         whole, magic 1, no codec
offset          0 or later
key, value      within the message; bytes after them, which no reader uses, are dropped
timestamp       -1 or later
checksum        correct
==============  ======================================================================================================

`broker.fetch.down_conversion` calls both functions.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout

build_stamp.check(__name__, __file__)
crc.prepare()

_V0_BYTES = cython.declare(cython.Py_ssize_t, 26)
_V1_BYTES = cython.declare(cython.Py_ssize_t, 34)
_TIMESTAMP_BYTES = cython.declare(cython.Py_ssize_t, 8)


def holds_messages_only(data: cython.const[cython.uchar][::1], magic: cython.int) -> bool:
    """Return whether `data` holds only messages up to format `magic`, 0 or 1; the last one may be cut off.

    False for anything else: the caller reports what is not a message.
    """
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    end: cython.Py_ssize_t = len(data)
    position: cython.Py_ssize_t = 0
    size: cython.longlong
    found: cython.int
    is_so: cython.bint = True
    with cython.nogil:
        while end - position >= _V0_BYTES:
            size = buffers.int32(p, position + 8) + layout.LOG_OVERHEAD
            if size >= _V0_BYTES and size > end - position:
                break
            found = p[position + 16]
            if found > magic or size < (_V0_BYTES if found == 0 else _V1_BYTES) or buffers.int64(p, position) < 0:
                is_so = False
                break
            position += size
    return is_so


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _content_end(
    p: cython.pointer(cython.const[cython.uchar]), position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where the value of the plain message in `p[position:end]` ends, -1 if the message is not plain."""
    if p[position + 16] != 1 or p[position + 17] & layout.CODEC_BITS or buffers.int64(p, position) < 0:
        return -1
    if buffers.int64(p, position + 18) < -1:
        return -1
    at: cython.Py_ssize_t = position + 26
    length: cython.longlong = buffers.int32(p, at)
    at += 4
    if length < -1 or length > end - at - 4:
        return -1
    if length > 0:
        at += cython.cast(cython.Py_ssize_t, length)
    length = buffers.int32(p, at)
    at += 4
    if length < -1 or length > end - at:
        return -1
    if length > 0:
        at += cython.cast(cython.Py_ssize_t, length)
    if crc.crc32(p, position + 16, end, 0) != cython.cast(cython.uint, buffers.uint32(p, position + 12)):
        return -1
    return at


def plain_messages_to_v0(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, first_offset: cython.longlong
) -> tuple[bytearray, int, int]:
    """Return the plain messages of `data` from `start` on as v0, their number, and where the first other entry starts.

    Messages below `first_offset` are left out.
    """
    end: cython.Py_ssize_t = len(data)
    if not 0 <= start <= end:
        raise ValueError(f"start {start} outside of {end} bytes")
    out: bytearray = buffers.new_bytes(end - start)
    if end - start < _V1_BYTES:
        return bytearray(), 0, start
    view: cython.uchar[::1] = out
    target: cython.p_uchar = buffers.output(view)
    p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    position: cython.Py_ssize_t = start
    at: cython.Py_ssize_t = 0
    messages: cython.Py_ssize_t = 0
    size: cython.longlong
    content_end: cython.Py_ssize_t
    first: cython.Py_ssize_t
    with cython.nogil:
        while end - position >= _V1_BYTES:
            size = buffers.int32(p, position + 8) + layout.LOG_OVERHEAD
            if size < _V1_BYTES or size > end - position:
                break
            content_end = _content_end(p, position, position + size)
            if content_end < 0:
                break
            if buffers.int64(p, position) >= first_offset:
                first = at
                at = buffers.copy(target, at, p, position, 8) + 8
                target[at] = 0
                target[at + 1] = 0
                at = buffers.copy(target, at + 2, p, position + 26, content_end - position - 26)
                buffers.put(target, first + 8, 4, at - first - layout.LOG_OVERHEAD)
                buffers.put(target, first + 12, 4, crc.crc32(target, first + 16, at, 0))
                messages += 1
            position += cython.cast(cython.Py_ssize_t, size)
    del view
    del out[at:]
    return out, messages, position
