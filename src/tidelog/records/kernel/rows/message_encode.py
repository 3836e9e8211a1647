"""Encodes records of a v2 batch as v0 or v1 messages, without an object per record.

A broker does this for fetchers that support no newer format (spec §12). `record_scan` has located the records. Each becomes a
message:

====================  ==========================================================================================================
offset                8 bytes, minus `base_offset`: inside a compressed v1 message, offsets are relative
size                  4 bytes: of what follows
checksum              4 bytes: CRC-32 of what follows
magic, attributes     1 byte each
timestamp             8 bytes, v1 only
key, value            4 bytes of length, -1 for null, and the bytes
====================  ==========================================================================================================

`records.conversion` and `records.message_set` call this.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc

build_stamp.check(__name__, __file__)
crc.prepare()

_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_ENTRY_BYTES = cython.declare(cython.Py_ssize_t, 12)


@cython.boundscheck(False)
@cython.wraparound(False)
def messages_bytes(
    key_lengths: cython.const[cython.int][::1],
    value_lengths: cython.const[cython.int][::1],
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    magic: cython.int,
) -> int:
    """Return the size in bytes that rows `first` to `last` (exclusive) have as messages of format `magic`, 0 or 1."""
    if not 0 <= first <= last <= len(key_lengths) or len(key_lengths) != len(value_lengths):
        raise ValueError(f"the rows {first}:{last} do not fit {len(key_lengths)} keys and {len(value_lengths)} values")
    total: cython.longlong = (last - first) * (26 + 8 * magic)
    row: cython.Py_ssize_t
    for row in range(first, last):
        if key_lengths[row] > 0:
            total += key_lengths[row]
        if value_lengths[row] > 0:
            total += value_lengths[row]
    return total


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_field(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    data: cython.pointer(cython.const[cython.uchar]),
    position: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a key or a value, and return the end position."""
    buffers.put(out, at, 4, length)
    at += 4
    if length <= 0:
        return at
    return buffers.copy(out, at, data, position, length)


@cython.boundscheck(False)
@cython.wraparound(False)
def encode_messages(
    out: cython.uchar[::1],
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    key_positions: cython.const[cython.int][::1],
    key_lengths: cython.const[cython.int][::1],
    value_positions: cython.const[cython.int][::1],
    value_lengths: cython.const[cython.int][::1],
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    base_offset: cython.longlong,
    magic: cython.int,
    attributes: cython.int,
) -> cython.Py_ssize_t:
    """Write rows `first` to `last` (exclusive) into `out`, whose size `messages_bytes` returned. Return -1.

    Positions refer to `data`. If a row's timestamp is below -1, which these formats do not allow, return that row instead.
    """
    rows: cython.Py_ssize_t = len(offsets)
    if len(out) != messages_bytes(key_lengths, value_lengths, first, last, magic) or last > rows:
        raise ValueError(f"{len(out)} bytes are the wrong size for rows {first}:{last} of {rows}")
    if first == last:
        return -1
    size: cython.Py_ssize_t = len(data)
    row: cython.Py_ssize_t
    for row in range(first, last):
        if not (0 <= key_positions[row] <= size - max(key_lengths[row], 0)):
            raise ValueError(f"the key of row {row} is not within the buffer of {size} bytes")
        if not (0 <= value_positions[row] <= size - max(value_lengths[row], 0)):
            raise ValueError(f"the value of row {row} is not within the buffer of {size} bytes")
    source: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    target: cython.p_uchar = buffers.output(out)
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    fault: cython.Py_ssize_t = -1
    with cython.nogil:
        for row in range(first, last):
            if timestamps[row] < _NO_TIMESTAMP:
                fault = row
                break
            start = at
            at += 16
            target[at] = magic
            target[at + 1] = attributes
            at += 2
            if magic == 1:
                buffers.put(target, at, 8, timestamps[row])
                at += 8
            at = _put_field(target, at, source, key_positions[row], key_lengths[row])
            at = _put_field(target, at, source, value_positions[row], value_lengths[row])
            buffers.put(target, start, 8, offsets[row] - base_offset)
            buffers.put(target, start + 8, 4, at - start - _ENTRY_BYTES)
            buffers.put(target, start + 12, 4, crc.crc32(target, start + 16, at, 0))
    return fault
