"""Writes large files past the page cache, if the file system can.

A copy into the page cache costs several times the processor time of a direct write, and drives out what is read more often.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

DIRECT_BYTES = 1024 * 1024
"""It is of no use for smaller files."""
BLOCK_BYTES = 4096
"""Direct writes need memory, positions and lengths in multiples of it."""


def write_large(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a new file, or another content into it. Raises OSError, and may leave a part of the file then.

    Memory that does not begin at a page, and what is left after the last whole block, go through the page cache.
    """
    view = memoryview(data)
    written = _write_blocks(path, view[: len(view) - len(view) % BLOCK_BYTES])
    with path.open("r+b" if written else "wb", buffering=0) as file:
        file.seek(written)
        while written < len(view):
            written += file.write(view[written:])


def _write_blocks(path: Path, view: memoryview) -> int:
    """Return how much could be written directly."""
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
