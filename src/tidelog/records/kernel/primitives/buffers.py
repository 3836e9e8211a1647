"""Functions with which hot loops access buffers and the numbers in them. buffers.pxd has the same in C, where buffers are
pointers.

These functions check no bounds: the callers do.
"""

from __future__ import annotations

from typing import Any

# --- Buffers as pointers: interpreted, the buffer itself


def input_bytes(view: Any) -> Any:
    """Return a buffer to read bytes from."""
    return view


input_ints = input_longs = output = longs = words = ints = signed_bytes = input_bytes
"""The same for numbers of other sizes and for buffers to write to."""


def prefetch(words: Any, at: int) -> None:
    """Ask the processor to load `words[at]` into its cache. Interpreted, this does nothing."""


def new_bytes(size: int) -> bytearray:
    """Return `size` bytes that the caller overwrites. In C they are not zeroed."""
    return bytearray(size)


def copy(out: Any, at: int, data: Any, start: int, size: int) -> int:
    """Copy `data[start : start + size]` to `out[at:]`. Return the end position in `out`."""
    out[at : at + size] = data[start : start + size]
    return at + size


# --- Kafka's numbers: big-endian


def int16(data: Any, at: int) -> int:
    """Return the signed int16 at `at`."""
    return int.from_bytes(data[at : at + 2], "big", signed=True)


def int32(data: Any, at: int) -> int:
    """Return the signed int32 at `at`."""
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def uint32(data: Any, at: int) -> int:
    """Return the uint32 at `at`, such as a checksum."""
    return int.from_bytes(data[at : at + 4], "big")


def int64(data: Any, at: int) -> int:
    """Return the signed int64 at `at`."""
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def put(out: Any, at: int, size: int, value: int) -> None:
    """Write the low `size` bytes of a number at `at`, big-endian."""
    out[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")


# --- Arrow's binary layout


def entry_length(offsets: Any, validity: Any, has_validity: bool, at: int) -> int:
    """Return the length of entry `at`, -1 for null."""
    if has_validity and not validity[at >> 3] >> (at & 7) & 1:
        return -1
    return int(offsets[at + 1] - offsets[at])
