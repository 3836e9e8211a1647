"""Closes many logs: each is flushed and closed, several in parallel, with progress lines.

Closing a log with new records waits for the disk about ten times, so ten thousand logs would take minutes one after the other.
The disk is faster with several requests at once. Closing a log without new records waits for the disk, too: an empty log is
synced, and a flushed log may still have to write a snapshot of its producers. So other threads close the logs; the calling thread
does so only if no other thread can be started. `Partitions` calls this at shutdown. If the disk does not respond for `STALLED_S`
seconds, waiting ends: the shutdown is then unclean, and the next start recovers. The threads that still wait for the disk keep
the folder locked.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from tidelog.errors import StorageError
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.storage")

THREADS = 8
PROGRESS_S = 2.0
"""Seconds between two progress lines of a slow shutdown."""
STALLED_S = 60.0
_NAME = "tidelog-closing"


def close_logs(
    logs: Iterable[PartitionLog],
    locked: Callable[[], AbstractContextManager[None]],
    progress: Callable[[], object] = lambda: None,
) -> bool:
    """Flush and close logs; return whether all were closed cleanly. A failure is logged and does not stop the others.

    `locked` keeps the logs' folder locked, and each thread enters it. `progress` is called repeatedly, after one or several logs
    were closed. Raises StorageError if the disk does not respond.
    """
    waiting = deque(logs)
    closed: SimpleQueue[bool] = SimpleQueue()

    def close_some() -> None:
        with locked(), suppress(IndexError):  # None is left.
            while True:
                closed.put(_close(waiting.popleft()))

    began = reported_at = moved = monotonic()
    is_clean, left = True, len(waiting)
    total = left
    threads = [Thread(target=close_some, name=f"{_NAME}_{number}") for number in range(min(THREADS, total))]
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:  # The program is ending, and has no threads left.
            close_some()
    while left:
        try:
            is_clean &= closed.get(timeout=PROGRESS_S)
        except Empty:
            if monotonic() - moved >= STALLED_S:
                waiting.clear()
                raise StorageError(
                    f"the disk has not answered for {monotonic() - moved:.0f} s: {left} logs are not closed"
                ) from None
        else:
            left -= 1
            moved = monotonic()
            progress()
        if monotonic() - reported_at >= PROGRESS_S:
            reported_at = monotonic()
            logger.info("%d of %d logs flushed and closed after %.0f s", total - left, total, reported_at - began)
    for thread in threads:
        if thread.ident is not None:
            thread.join()  # None has anything left to do.
    return is_clean


def _close(log: PartitionLog) -> bool:
    try:
        if not log.is_offline and not log.local.is_closed:
            log.flush(force_active=True)
        log.close()
    except Exception as error:
        log.close_handlers()
        logger.error("%s: not closed cleanly: %s", log.directory, error)
        return False
    return not log.is_offline
