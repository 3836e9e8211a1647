"""Skips the headers of a v2 record. record_headers.pxd has the same in C."""

from __future__ import annotations

from typing import Any

from tidelog.records.kernel.primitives import faults, varints


def skip(data: Any, pos: int, end: int, count: int) -> int:
    """Return the position after `count` headers, or a fault code. The headers begin at `pos` and end at `end` at the latest."""
    if not 0 <= count <= end - pos:
        return faults.HEADER_COUNT
    for _ in range(count):
        for smallest, fault in ((0, faults.HEADER_KEY), (None, faults.HEADER_VALUE)):
            packed = varints.read(data, pos, end)
            if packed & 15 == 0:
                return packed >> 4
            pos += packed & 15
            size = packed >> 5 ^ -(packed >> 4 & 1)
            if size > end - pos or (smallest is not None and size < smallest):
                return fault
            pos += max(size, 0)
    return pos
