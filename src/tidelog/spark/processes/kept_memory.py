"""Lets the workers that Spark starts keep the memory of one Arrow batch for the next.

A batch's columns have a few megabytes each. By default glibc returns such memory to the kernel when it is freed, and the kernel
clears it again for the next batch: 10 to 30 % of a worker's processor time. Other C libraries have their own ways and are left
alone.
"""

from __future__ import annotations

import ctypes
from functools import cache

from tidelog.spark.processes.loaded_modules import is_sparks

KEPT_BYTES = 64 << 20
"""The most free memory, at the end of the heap, that a worker keeps."""
SEPARATE_BYTES = 32 << 20
"""Blocks of this size and more are still returned at once. This is glibc's own upper limit."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's malloc.h."""


@cache
def keep_memory() -> None:
    """Keep up to `KEPT_BYTES` of freed memory in this process, if Spark started it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if is_sparks() and mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, SEPARATE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
