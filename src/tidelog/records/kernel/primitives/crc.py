"""Checksums of parts of buffers. crc.pxd has the same in C: by the processor's own instructions where it has them."""

from __future__ import annotations

import zlib
from typing import Any

from crc32c import crc32c as _package_crc32c


def prepare() -> str:
    """Make ready what the others need; each kernel that uses them calls this first. Return what computes CRC-32C."""
    return "package"


def crc32c(data: Any, start: int, end: int, value: int) -> int:
    """Return the CRC-32C of `data[start:end]`; `value` is that of what came before."""
    return _package_crc32c(memoryview(data)[start:end], value)


crc32c_by_table = crc32c
"""The same as a processor without an instruction for it comes to it."""


def crc32(data: Any, start: int, end: int, value: int) -> int:
    """Return zlib's CRC-32 of `data[start:end]`; `value` is that of what came before."""
    return zlib.crc32(memoryview(data)[start:end], value)


def crc32c_of(data: Any, value: int) -> int:
    """Return the CRC-32C of all of `data`, the soonest: a small batch has little else that takes as long as a view of it."""
    return _package_crc32c(data, value)
