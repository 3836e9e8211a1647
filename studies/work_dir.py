"""The temporary folder for a case's logs, in memory if there is enough.

A study writes thousands of small segments, and the engine flushes each of them to the disk. Logs that exist only for seconds do
not need that. In memory a flush costs nothing, and parallel cases do not wait for the same disk.

Spark kills its workers when a job is cancelled, and a killed worker leaves its folder behind. So each process locks its folder.
An unlocked folder is removed when the next one is created, or when a job ends early (`remove_abandoned`).
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
"""The least free space in memory, in bytes. Containers often have 64 MiB, which is too small for any study."""

PREFIX = "tidelog-study-"

_POLL_SECONDS = 0.05


@contextmanager
def work_dir() -> Iterator[Path]:
    """Create an empty folder, and remove it with its contents at the end of the block. `TMPDIR`, if set, gives the place."""
    remove_abandoned()
    # Rename it once it is locked; otherwise it would look abandoned.
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=memory_with_room()))
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
    """Remove the folders of dead processes.

    Repeat for `at_least_s` seconds, because a process that is ending may still create one, and for up to `at_most_s` seconds
    while any folder is locked.
    """
    began = time.monotonic()
    while True:
        is_locked = _remove_unlocked()
        if time.monotonic() - began >= (max(at_least_s, at_most_s) if is_locked else at_least_s):
            return
        time.sleep(_POLL_SECONDS)


def _remove_unlocked() -> bool:
    """Return whether locked folders are left."""
    is_locked = False
    for folder in (memory_with_room() or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # The folder belongs to a live process, or was removed meanwhile.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            is_locked = True
        finally:
            os.close(lock)
    return is_locked


def memory_with_room() -> Path | None:
    """Return the file system in memory if it has room for many logs; None if not, or if `TMPDIR` names another place."""
    if "TMPDIR" in os.environ:
        return None
    try:
        status = os.statvfs(MEMORY)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    return MEMORY if free >= PLENTY_BYTES and os.access(MEMORY, os.W_OK | os.X_OK) else None
