"""Computes CRC-32C and CRC-32 of any buffer without the GIL, and the digest that identifies consecutive batches.

Compiled, the checksums come from `checksums.h`, which uses the processor's CRC-32C instruction, or tables if it has none.
`CRC32C` says which.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc

build_stamp.check(__name__, __file__)

CRC32C: str = crc.prepare()


def crc32c(data: object, value: cython.uint = 0) -> int:
    """Return the CRC-32C of `data`. `value` is the CRC-32C of the preceding data. Releases the GIL, unless `data` is only a few
    kilobytes.
    """
    return crc.crc32c_of(data, value)


def crc32c_by_table(data: cython.const[cython.uchar][::1], value: cython.uint = 0) -> int:
    """Return what `crc32c` returns, computed with tables as on a processor without the instruction."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return value
    pointer: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    return crc.crc32c_by_table(pointer, 0, length, value)


def crc32(data: cython.const[cython.uchar][::1], value: cython.uint = 0) -> int:
    """Return zlib's CRC-32 of `data`. `value` is the CRC-32 of the preceding data. Releases the GIL."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return value
    pointer: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    with cython.nogil:
        value = crc.crc32(pointer, 0, length, value)
    return value


# --- The digest of batches -------------------------------------------------------------------------------------------------


def digest_batches(
    data: cython.const[cython.uchar][::1], end: cython.longlong, value: cython.uint = 0
) -> tuple[cython.longlong, cython.uint]:
    """Walk the batches from the start of `data` to `end`. Return (the position reached, the batches' digest).

    The digest is a CRC-32C over the base offset, size and checksum of each batch, 16 bytes as stored in the header. `value` is
    the digest of the preceding batches. The data may end after the last batch's header. The walk stops before a header that is
    incomplete or invalid. Nothing else is checked.
    """
    length: cython.Py_ssize_t = len(data)
    position: cython.longlong = 0
    if length == 0:
        return (position, value)
    pointer: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
    at: cython.Py_ssize_t
    size: cython.longlong
    with cython.nogil:
        while position < end and length - position >= 21:
            at = cython.cast(cython.Py_ssize_t, position)
            size = buffers.int32(pointer, at + 8)
            if size < 14 or pointer[at + 16] > 2:
                break
            value = crc.crc32c(pointer, at, at + 12, value)
            if pointer[at + 16] == 2:
                value = crc.crc32c(pointer, at + 17, at + 21, value)
            else:
                value = crc.crc32c(pointer, at + 12, at + 16, value)
            position += 12 + size
    return (position, value)
