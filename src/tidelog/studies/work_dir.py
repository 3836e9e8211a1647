"""Where a case keeps the logs that it writes: a folder that is gone afterwards, in memory if there is plenty.

A study writes thousands of small segments, and the engine flushes each of them to the disk as it would for good. Nobody
needs that of a log that lives for seconds: in memory a flush costs nothing, and cases side by side do not wait for one disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108
PLENTY_BYTES = 4 << 30
"""So much has to be free there; containers often have 64 MiB, which no study fits in."""


@contextmanager
def work_dir() -> Iterator[Path]:
    """Make an empty folder, and remove it with all that is in it at the block's end. `TMPDIR`, if set, says where."""
    with tempfile.TemporaryDirectory(prefix="tidelog-study-", dir=_parent()) as folder:
        yield Path(folder)


def _parent() -> Path | None:
    if "TMPDIR" in os.environ:
        return None
    try:
        status = os.statvfs(MEMORY)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    return MEMORY if free >= PLENTY_BYTES and os.access(MEMORY, os.W_OK | os.X_OK) else None
