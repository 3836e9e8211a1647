"""Open files of a process that may not have many: logs give back those that they can open again, before anything fails.

| the process has | then |
|---|---|
| fewer than `SPARE` descriptors left after an open | the logs of this thread give theirs back |
| none left | the same, and the open is tried once more |
| none left even so | OSError with EMFILE: the caller may try again, nothing was changed (`is_shortage`) |

A segment's files are opened when they are needed, so that a file which is given back costs one `open` at its next use. An
owner of logs registers with `close_on_shortage_by` on the thread that they belong to; other threads' logs are never touched.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

SPARE = 48
"""So many descriptors are kept free for what is open for a moment only: checkpoints, snapshots, folders, threads that read."""

AT_ONCE = 4
"""A change of a log's files has no more than so many open at once, beside the log's own."""

SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})

Giver = Callable[[], int]


class _Thread(threading.local):
    """Of one thread: who can give descriptors back, and how many opens are left until they are asked again."""

    def __init__(self) -> None:
        self.givers: list[Giver] = []
        self.rest = 0


_thread = _Thread()


def close_on_shortage_by(giver: Giver) -> None:
    """Have `giver` called when descriptors are short on this thread; it returns how many it has closed."""
    _thread.givers.append(giver)


def forget_closer(giver: Giver) -> None:
    """Forget a giver; no-op on another thread, or where it is unknown."""
    if giver in _thread.givers:
        _thread.givers.remove(giver)


def open_file(path: Path | str, flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open`. Raises OSError; EMFILE only where no log could give a descriptor back."""
    try:
        fd = os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in SHORTAGE or not _give_back():
            raise
        return os.open(path, flags, mode)
    # The system hands out the lowest number that is free, so that a high one says that few are left.
    if fd >= _spare_from():
        if _thread.rest:
            _thread.rest -= 1
        elif not _give_back():
            _thread.rest = SPARE  # None can be freed: do not look again at once.
    return fd


def ensure_spare() -> None:
    """Raise OSError (EMFILE) unless `AT_ONCE` files can be opened now; before a change that must not stop in the middle."""
    taken: list[int] = []
    try:
        for _ in range(AT_ONCE):
            taken.append(open_file("/dev/null", os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - what is open is closed
    finally:
        for fd in taken:
            os.close(fd)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that the process (or the machine) has no descriptor left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            return True
        error = error.__cause__
    return False


def _give_back() -> int:
    return sum(giver() for giver in list(_thread.givers))


_limit = 0


def look_at_limit() -> None:
    """Take over the limit of open files, which was changed, or may have been."""
    global _limit  # noqa: PLW0603 - the process has one
    _limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _spare_from() -> int:
    if not _limit:
        look_at_limit()
    return _limit - SPARE


__all__ = [
    "AT_ONCE",
    "SPARE",
    "close_on_shortage_by",
    "ensure_spare",
    "forget_closer",
    "is_shortage",
    "look_at_limit",
    "open_file",
]
