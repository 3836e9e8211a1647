"""A file's stamp: what changes with every change of its content, and is known without reading it.

| part | a change that it shows |
|---|---|
| inode | the file is another one: a copy, or one that was put in its place |
| size | it grew, or was cut |
| modification time | it was written to. Programs set this one as they like: `cp -p`, `rsync -t`, `touch -r` |
| change time | it was written to, cut, renamed or touched. Only the system sets this one, and always to the present |

So as long as all four are the same the content is the same. The reverse is not true: a rename or a copy changes the stamp, and
the content stays. Callers then compare the content.

The system's clock for files goes in ticks, a few milliseconds each: two writes within one tick bear the same time. A stamp is
only worth keeping once its tick is over (`settled_stamp`): what is written later then shows in it.

Not seen: what goes around the file system (a disk that rots, an editor of raw devices), a system clock that is set back to the
very nanosecond, memory that was mapped and changed before the stamp and is written to again. On a network file system the times
are the server's; where its clock is ahead of ours a stamp never settles, and the content is compared each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Self

TICK_NS = 10_000_000
"""The longest tick that a kernel is built with."""

COARSE_NS = 2_000_000_000
"""Times in whole seconds are those of a file system that knows no less; the coarsest counts by two."""

WAIT_NS = 2 * TICK_NS
"""How long `settled_stamp` waits at most for a tick to be over."""

_IS_LINUX: bool = os.uname().sysname == "Linux"
_LINUX_CLOCK_REALTIME_COARSE = 5


class FileStamp(NamedTuple):
    """A stamp that changes whenever a file's content does. Times in ns since the epoch."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


UNKNOWN = FileStamp(0, 0, 0, 0)
"""The stamp of no file: nothing is known of the one that was read."""


def settled_stamp(stamp_of: Callable[[], FileStamp]) -> FileStamp:
    """Return the stamp that `stamp_of` gives once later changes are sure to show in it; UNKNOWN where that takes long.

    Waits for the end of a tick, some milliseconds, if the file was changed a moment ago.
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
    """Return a time that no change of a file made from now on is stamped with an earlier one."""
    if _IS_LINUX:
        return time.clock_gettime_ns(_LINUX_CLOCK_REALTIME_COARSE)
    return time.time_ns() - TICK_NS
