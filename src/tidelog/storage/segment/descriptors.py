"""Limits open files: logs close files that they can reopen before the process runs out of descriptors.

| the process has | then |
|---|---|
| fewer than `SPARE` descriptors left after an open | the logs of this thread close their files |
| none left | the same, and the open is retried once |
| still none left | OSError with EMFILE: nothing was changed, and the caller may retry (`is_shortage`) |

A segment opens its files when needed, so closing a file costs one `open` at the file's next use. An owner of logs registers with
`close_on_shortage_by` on the logs' thread; other threads' logs are never touched.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

SPARE = 48
"""How many descriptors are kept free for short use: checkpoints, snapshots, folders, threads that read."""

AT_ONCE = 4
"""The most files that a change of a log has open at once, beside the log's own."""

SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})

Giver = Callable[[], int]


class _Thread(threading.local):
    """One thread's functions that can close descriptors, and how many files it may open before it calls them again."""

    def __init__(self) -> None:
        self.givers: list[Giver] = []
        self.rest = 0


_thread = _Thread()


def close_on_shortage_by(giver: Giver) -> None:
    """Register `giver`, which closes descriptors and returns their number. It is called when this thread is short of them."""
    _thread.givers.append(giver)


def forget_closer(giver: Giver) -> None:
    """Unregister `giver`. Does nothing if this thread has not registered it."""
    if giver in _thread.givers:
        _thread.givers.remove(giver)


def open_file(path: Path | str, flags: int, mode: int = 0o666) -> int:
    """Open a file like `os.open`. Raises OSError; EMFILE only if no log could close a descriptor."""
    try:
        fd = os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in SHORTAGE or not _give_back():
            raise
        return os.open(path, flags, mode)
    # The system assigns the lowest free number, so a high one shows that few are left.
    if fd >= _spare_from():
        if _thread.rest:
            _thread.rest -= 1
        elif not _give_back():
            _thread.rest = SPARE  # No descriptor can be freed: do not try again at once.
    return fd


def ensure_spare() -> None:
    """Raise OSError (EMFILE) unless `AT_ONCE` files can be opened now; called before a change that must not stop halfway."""
    taken: list[int] = []
    try:
        for _ in range(AT_ONCE):
            taken.append(open_file("/dev/null", os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - what is open is closed
    finally:
        for fd in taken:
            os.close(fd)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or its cause, means that the process or the machine has no descriptors left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            return True
        error = error.__cause__
    return False


def _give_back() -> int:
    return sum(giver() for giver in list(_thread.givers))


_limit = 0


def look_at_limit() -> None:
    """Read the process's limit of open files again, because it may have changed."""
    global _limit  # noqa: PLW0603 - the process has one
    _limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def few_files() -> int:
    """Return how many descriptors one kind of short use may take: a quarter of the descriptors that are not kept free, but at
    least `AT_ONCE`.
    """
    return max(AT_ONCE, _spare_from() // 4)


def _spare_from() -> int:
    if not _limit:
        look_at_limit()
    return _limit - SPARE


__all__ = [
    "AT_ONCE",
    "SPARE",
    "close_on_shortage_by",
    "ensure_spare",
    "few_files",
    "forget_closer",
    "is_shortage",
    "look_at_limit",
    "open_file",
]
