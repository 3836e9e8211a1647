"""Reads and writes Kafka's varints: zig-zag, 7 bits a byte, at most 5 bytes for an int32 and 10 for an int64. varints.pxd has the
same in C.
"""

from __future__ import annotations

from typing import Any

from tidelog.records.kernel.primitives import faults


def read(data: Any, pos: int, end: int) -> int:
    """Decode the int32 varint at `pos` without undoing the zig-zag. Return 16 * the number + its size in bytes, or 16 * a fault
    code.
    """
    raw = shift = 0
    for at in range(pos, end):
        byte: int = data[at]
        if shift == 28:
            if byte >= 128:
                return faults.VARINT * 16
            byte &= 15  # bits beyond the 32nd are dropped, as Kafka drops them
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw * 16 + (at + 1 - pos)
        shift += 7
    return faults.CUT_OFF * 16


def long_size(data: Any, pos: int, end: int) -> int:
    """Return the size in bytes of the int64 varint at `pos`, or a fault code."""
    for at in range(pos, min(end, pos + 10)):
        if data[at] < 128:
            return at + 1 - pos
    return faults.VARINT if end - pos >= 10 else faults.CUT_OFF


def long_value(data: Any, pos: int, size: int) -> int:
    """Return the int64 in the `size` bytes at `pos`."""
    raw = 0
    for i in range(size):
        byte = data[pos + i]
        if i == 9:
            byte &= 1  # the 64th bit
        raw |= (byte & 127) << 7 * i
    return (raw >> 1) ^ -(raw & 1)


def size(value: int) -> int:
    """Return the size in bytes of a value as a varint."""
    return max(1, ((value << 1 ^ value >> 63).bit_length() + 6) // 7)


def put(out: Any, at: int, value: int) -> int:
    """Write a value to `out[at:]`. Return the end position."""
    raw = value << 1 ^ value >> 63
    while raw >= 128:
        out[at] = raw & 127 | 128
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1
