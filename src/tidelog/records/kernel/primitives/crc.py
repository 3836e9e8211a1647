"""Computes checksums of parts of buffers. crc.pxd has the same in C, with the processor's instructions if it has them."""

from __future__ import annotations

import zlib
from typing import Any

from crc32c import crc32c as _package_crc32c


def prepare() -> str:
    """Initialize. Each kernel that uses checksums calls this first. Return a name of the CRC-32C implementation."""
    return "package"


def crc32c(data: Any, start: int, end: int, value: int) -> int:
    """Return the CRC-32C of `data[start:end]`. `value` is the CRC-32C of the preceding data."""
    return _package_crc32c(memoryview(data)[start:end], value)


crc32c_by_table = crc32c
"""The same, computed with tables."""


def crc32(data: Any, start: int, end: int, value: int) -> int:
    """Return zlib's CRC-32 of `data[start:end]`. `value` is the CRC-32 of the preceding data."""
    return zlib.crc32(memoryview(data)[start:end], value)


def crc32c_of(data: Any, value: int) -> int:
    """Return the CRC-32C of all of `data`, without creating a view: for a small batch, a view would take a large share of the
    time.
    """
    return _package_crc32c(data, value)
