"""Closes many logs: each is flushed and closed, several in parallel, with progress lines.

A log with new records needs about ten waits for the disk, so ten thousand of them would take minutes one after the other; the
disk is faster with several at once. `Partitions` calls this at shutdown. If the disk does not respond for `STALLED_S`, waiting
ends: the shutdown is unclean then, and the next start recovers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic

from tidelog.errors import StorageError
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.storage")

THREADS = 8
PROGRESS_S = 2.0
"""Seconds between two progress lines of a slow shutdown."""
STALLED_S = 60.0


def close_logs(logs: Iterable[PartitionLog], progress: Callable[[], object] = lambda: None) -> bool:
    """Flush and close logs; return whether all were closed cleanly. A failure is logged and does not stop the others.

    `progress` is called repeatedly, after one or several logs were closed. Raises StorageError if the disk does not respond.
    """
    dirty: list[PartitionLog] = []
    is_clean = True
    for log in logs:
        if log.local.unflushed_messages and not log.is_offline:
            dirty.append(log)
        else:
            is_clean &= _close(log)
            progress()
    return (not dirty or _close_at_once(dirty, progress)) and is_clean


def _close_at_once(logs: list[PartitionLog], progress: Callable[[], object]) -> bool:
    is_clean = True
    began = reported_at = moved = monotonic()
    pool = ThreadPoolExecutor(THREADS, "tidelog-closing")
    left: set[Future[bool]] = set()
    try:
        try:
            for log in logs:
                left.add(pool.submit(_close, log))
        except RuntimeError:  # The program is ending, and has no threads left.
            for log in logs[len(left) :]:
                is_clean &= _close(log)
        while left:
            done, left = wait(left, PROGRESS_S, FIRST_COMPLETED)
            is_clean &= all(future.result() for future in done)
            now = monotonic()
            if done:
                moved = now
                progress()
            elif now - moved >= STALLED_S:
                raise StorageError(f"the disk has not answered for {now - moved:.0f} s: {len(left)} logs are not closed")
            if now - reported_at >= PROGRESS_S:
                reported_at = now
                logger.info("%d of %d logs are on the disk after %.0f s", len(logs) - len(left), len(logs), now - began)
    finally:
        pool.shutdown(wait=not left, cancel_futures=True)
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
