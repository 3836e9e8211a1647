"""Brings offline partitions back once their disk works again.

| step | where | |
|---|---|---|
| wait | | `FIRST_WAIT_MS` after the error, longer after each failed attempt, at most `LONGEST_WAIT_MS` |
| probe | any thread | a small file is written to the partition's folder, synced and removed, which fails on a full disk |
| load | any thread | as after an unclean shutdown: the log is truncated after the last whole batch, producers are rebuilt |
| replace | the logs' thread | the new log replaces the old one; a log line says so |

Until the probe succeeds, acknowledged records are read from the old log. While the partition is loaded, reads are refused like
writes (KAFKA_STORAGE_ERROR, on which clients retry), because its indexes are being rebuilt. If loading fails, the old log is read
again. If the new log ends before the old one, the disk has lost acknowledged records: an error is logged with the offsets, and
`returned` is called.

Only partitions that are offline because of an operating system error are retried: damaged data stays damaged. One partition is
brought back at a time. `background_work` owns one `OfflinePartitions`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tidelog.clock import Clock
from tidelog.errors import StorageError, TidelogError
from tidelog.formats.names import DELETED_SUFFIX
from tidelog.model import TopicPartition
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions
from tidelog.storage.scheduler import Scheduler

logger = logging.getLogger("tidelog.storage")

T = TypeVar("T")

FIRST_WAIT_MS = 500
LONGEST_WAIT_MS = 5_000

PROBE_BYTES = 64 * 1024
PROBE_FILE = f"tidelog-probe{DELETED_SUFFIX}"
"""After a crash, a start removes files with this ending."""


class OfflinePartitions:
    """Brings partitions of `partitions` back. `folder_of` returns the folder from which to load a partition, and `is_wanted`
    whether to load it.
    """

    def __init__(
        self,
        partitions: Partitions,
        clock: Clock,
        scheduler: Scheduler,
        folder_of: Callable[[TopicPartition], PartitionFolder],
        is_wanted: Callable[[TopicPartition], bool],
    ) -> None:
        self.went_offline = 0
        """How many times a partition went offline."""
        self.came_back = 0
        """How many times an offline partition came back."""
        self.returned: Callable[[PartitionLog, bool], object] | None = None
        """Called with a log that came back, and whether the disk has lost acknowledged records."""
        self.left: Callable[[TopicPartition], object] | None = None
        """Called with a partition that went offline, perhaps within a write to it."""
        self._partitions = partitions
        self._clock = clock
        self._scheduler = scheduler
        self._folder_of = folder_of
        self._is_wanted = is_wanted
        self._waits: dict[TopicPartition, int] = {}
        """How long each partition waited before its last attempt."""
        self._tries: list[TopicPartition] = []
        self._is_armed = False
        self._is_stopped = False

    def went(self, key: TopicPartition) -> None:
        """Handle a partition that went offline."""
        self.went_offline += 1
        if self.left is not None:
            self.left(key)
        self.arm()

    def arm(self) -> None:
        """Retry offline partitions from now on, until none is left."""
        if not self._is_armed and not self._is_stopped:
            self._is_armed = True
            waits = [self._waits.get(key, 0) for key in self._recoverable()]
            wait_ms = min(max(2 * min(waits, default=0), FIRST_WAIT_MS), LONGEST_WAIT_MS)
            self._scheduler.schedule("offline-partitions", self._begin, delay_ms=wait_ms)

    def stop(self) -> None:
        """Stop; the attempt in progress is discarded."""
        self._is_stopped = True

    # --- one round

    def _recoverable(self) -> list[TopicPartition]:
        return [key for key in self._partitions.recoverable() if self._is_wanted(key)]

    def _begin(self) -> None:
        self._tries = self._recoverable()[::-1]
        self._next()

    def _next(self) -> None:
        if self._is_stopped:
            return
        if not self._tries:
            self._is_armed = False
            if self._recoverable():
                self.arm()
            return
        key = self._tries.pop()
        directory = self._partitions.directory_of(key)
        self._do("offline-probe", lambda: probe(directory), lambda result: self._probed(key, result))

    def _probed(self, key: TopicPartition, result: Exception | None) -> None:
        if self._is_stopped or not self._partitions.is_recoverable(key):
            self._next()
            return
        if result is not None:
            self._failed(key, result)
            return
        log = self._partitions.logs.get(key)
        if log is not None:
            log.close_handlers()
        load = self._partitions.loader.loading_again(self._folder_of(key), self._partitions.logs.get(key))
        self._do("offline-load", load, lambda loaded: self._loaded(key, log, loaded))

    def _loaded(self, key: TopicPartition, old: PartitionLog | None, loaded: PartitionLog | Exception) -> None:
        is_there = self._partitions.logs.get(key) is old and self._partitions.is_recoverable(key)
        if isinstance(loaded, Exception):
            if old is not None and is_there:
                old.local.is_closed = False
            self._failed(key, loaded)
            return
        if self._is_stopped or not is_there:  # Deleted meanwhile, or brought back by hand.
            loaded.close_handlers()
        else:
            self._partitions.put_into_place(key, loaded)
            self.came_back += 1
            self._waits.pop(key, None)
            logger.warning(
                "%s is online again, with offsets %d to %d", loaded.directory, loaded.log_start_offset, loaded.log_end_offset
            )
            has_lost = old is not None and loaded.log_end_offset < old.log_end_offset
            if old is not None and has_lost:
                logger.error(
                    "%s: the disk has lost offsets %d to %d, which were acknowledged",
                    loaded.directory,
                    loaded.log_end_offset,
                    old.log_end_offset - 1,
                )
            if self.returned is not None:
                try:
                    self.returned(loaded, has_lost)
                except Exception:
                    # A bug must affect only this partition.
                    logger.exception("%s is online again, but cannot be used", loaded.directory)
        self._next()

    def _failed(self, key: TopicPartition, error: Exception) -> None:
        if not isinstance(error, (TidelogError, OSError)):
            logger.error("%s-%d cannot be brought online again", *key, exc_info=error)
        wait_ms = self._waits[key] = min(max(2 * self._waits.get(key, 0), FIRST_WAIT_MS), LONGEST_WAIT_MS)
        logger.debug("%s-%d is still offline; the next attempt is in %d ms: %s", *key, wait_ms, error)
        self._next()

    def _do(self, name: str, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Call `work` on another thread if the scheduler's owner has one, then `done` with the result on the logs' thread."""
        outcome: list[T | Exception] = []

        def ahead() -> None:
            try:
                outcome.append(work())
            except Exception as error:
                outcome.append(error)

        def task() -> None:
            if self._is_stopped and not outcome:
                return
            if not outcome:
                ahead()
            done(outcome[0])

        self._scheduler.schedule(name, task, ahead=ahead)


def probe(directory: Path) -> None:
    """Write, sync and remove a small file in a partition's folder. Raises StorageError if the disk does not work."""
    path = directory / PROBE_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            written = os.pwrite(fd, bytes(PROBE_BYTES), 0)
            if written < PROBE_BYTES:
                raise StorageError("the disk is full", path=path)
            os.fsync(fd)
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write to a partition's folder: {error.strerror}", path=path) from error
