"""A file's stamp: it changes whenever the content changes, and can be read without reading the file.

| part | it changes when |
|---|---|
| inode | the file is replaced, or copied |
| size | the file grows or is truncated |
| modification time | the file is written to. Programs can set it: `cp -p`, `rsync -t`, `touch -r` |
| change time | the file is written to, truncated, renamed or touched. Only the system sets it, to the current time |

If two stamps are equal in all four parts, the content is equal. The reverse is not true: a rename or a copy changes the stamp but
not the content. If the stamps differ, callers compare the content.

File times have a resolution of a few milliseconds, the tick: two writes within one tick get the same time. A stamp is only
reliable once its tick is over (`settled_stamp`): only then does every later write change the stamp.

A stamp does not detect changes below the file system (bit rot, writes to the raw device), a system clock that is set back to
exactly the same nanosecond, and further writes to a memory mapping that was changed before the stamp was taken. On a network file
system the times are the server's. If the server's clock is ahead of ours, a stamp never settles, and the content is compared each
time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Self

TICK_NS = 10_000_000
"""The longest tick of any kernel configuration."""

COARSE_NS = 2_000_000_000
"""The tick of file systems that store times in whole seconds. The coarsest has a resolution of two seconds."""

WAIT_NS = 2 * TICK_NS
"""The longest time that `settled_stamp` waits for the end of a tick."""

_IS_LINUX: bool = os.uname().sysname == "Linux"
_LINUX_CLOCK_REALTIME_COARSE = 5


class FileStamp(NamedTuple):
    """A file's stamp. Times are in nanoseconds since the epoch."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


UNKNOWN = FileStamp(0, 0, 0, 0)
"""Equals no file's stamp. It means that the file that was read is unknown."""


def settled_stamp(stamp_of: Callable[[], FileStamp]) -> FileStamp:
    """Return the stamp once any later change is certain to alter it, UNKNOWN if that takes too long.

    If the file was changed a moment ago, this waits a few milliseconds for the end of the tick.
    """
    give_up_ns = time.monotonic_ns() + WAIT_NS
    while True:
        stamp = stamp_of()
        granularity_ns = 0 if stamp.changed_ns % 1_000_000_000 else COARSE_NS
        left_ns = stamp.changed_ns + granularity_ns - _file_clock_ns()
        if left_ns < 0:
            return stamp
        if left_ns > WAIT_NS or time.monotonic_ns() > give_up_ns:
            return UNKNOWN
        time.sleep(0.001)


def _file_clock_ns() -> int:
    """Return a lower bound for the times of all file changes from now on."""
    if _IS_LINUX:
        return time.clock_gettime_ns(_LINUX_CLOCK_REALTIME_COARSE)
    return time.time_ns() - TICK_NS
