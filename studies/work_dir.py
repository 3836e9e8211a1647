"""Where a case keeps the logs that it writes: a folder that is gone afterwards, in memory if there is plenty.

A study writes thousands of small segments, and the engine flushes each of them to the disk as it would for good. Nobody
needs that of a log that lives for seconds: in memory a flush costs nothing, and cases side by side do not wait for one disk.

A worker that is killed, as Spark does when a job is cancelled, leaves its folder. Each folder is therefore locked by its process;
one that nobody locks is removed when the next is made, or when a job ends early (`remove_abandoned`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108
PLENTY_BYTES = 4 << 30
"""So much has to be free there; containers often have 64 MiB, which no study fits in."""

PREFIX = "tidelog-study-"

_POLL_SECONDS = 0.05


@contextmanager
def work_dir() -> Iterator[Path]:
    """Make an empty folder, and remove it with all that is in it at the block's end. `TMPDIR`, if set, says where."""
    remove_abandoned()
    # It gets its name once it is locked: before, it would pass for abandoned.
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=_parent()))
    lock = os.open(made, os.O_RDONLY)
    folder = made.with_name(made.name[1:])
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned(at_least_s: float = 0, at_most_s: float = 0) -> None:
    """Remove the folders of processes that are gone.

    Looks again for `at_least_s`, as a process that is going may still begin one, and up to `at_most_s` while any is locked.
    """
    began = time.monotonic()
    while True:
        is_locked = _remove_unlocked()
        if time.monotonic() - began >= (max(at_least_s, at_most_s) if is_locked else at_least_s):
            return
        time.sleep(_POLL_SECONDS)


def _remove_unlocked() -> bool:
    """Return whether there are locked ones left."""
    is_locked = False
    for folder in (_parent() or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # Another process's, or gone by now.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            is_locked = True
        finally:
            os.close(lock)
    return is_locked


def _parent() -> Path | None:
    if "TMPDIR" in os.environ:
        return None
    try:
        status = os.statvfs(MEMORY)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    return MEMORY if free >= PLENTY_BYTES and os.access(MEMORY, os.W_OK | os.X_OK) else None
