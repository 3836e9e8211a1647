"""Writes large files without the page cache, if the file system supports that.

A copy into the page cache costs several times the processor time of a direct write, and evicts data that is read more often.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

DIRECT_BYTES = 1024 * 1024
"""Direct writes have no advantage for smaller files."""
BLOCK_BYTES = 4096
"""In direct writes, the memory address, the position and the length must be multiples of this."""


def write_large(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Create a file, or replace its content. Raises OSError; the file may then be incomplete.

    The bytes after the last whole block go through the page cache. So do all bytes if `data` is not aligned to a page in memory.
    """
    view = memoryview(data)
    written = _write_blocks(path, view[: len(view) - len(view) % BLOCK_BYTES])
    with path.open("r+b" if written else "wb", buffering=0) as file:
        file.seek(written)
        while written < len(view):
            written += file.write(view[written:])


def _write_blocks(path: Path, view: memoryview) -> int:
    """Write as many bytes as possible directly, and return their number: 0 without support for direct writes."""
    direct = getattr(os, "O_DIRECT", 0)  # Linux has it.
    if not direct:
        return 0
    written = 0
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | direct, 0o666)
        try:
            while written < len(view):
                written += os.write(fd, view[written:])
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # This file system cannot, or not from this memory.
            raise
    return written
