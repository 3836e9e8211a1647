"""Detects logs whose files another process removed while this one writes to them: later appends would be lost.

The system still accepts writes to a removed file, so its name must be checked. Logs that have grown since the last check are
checked, on another thread if there is one. A log whose file is gone goes offline: writes are refused, and it comes back with its
folder (`offline_partitions`), with the content that the folder then has. `background_work` owns one `RemovedFiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions
from tidelog.storage.scheduler import Scheduler

AT_ONCE = 128
"""The number of logs that are checked before the clock is read again."""


class RemovedFiles:
    """Detects removed files. Call `look` on the logs' thread."""

    def __init__(self, partitions: Partitions, scheduler: Scheduler) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._ends: dict[TopicPartition, int] = {}

    def look(self) -> None:
        """Check that the files of logs that have grown since the last call still exist. Many logs are checked in slices."""
        before, self._ends = self._ends, {}
        self._look_at(iter(list(self._partitions.logs.items())), before)

    def _look_at(self, logs: Iterator[tuple[TopicPartition, PartitionLog]], before: dict[TopicPartition, int]) -> None:
        grown = []
        for count, (key, log) in enumerate(logs, 1):
            if not log.is_offline and self._partitions.logs.get(key) is log:
                end = self._ends[key] = log.log_end_offset
                if end != before.get(key, 0):
                    grown.append((key, log.segments.active.log.path))
            if not count % AT_ONCE and self._scheduler.is_over:
                self._scheduler.schedule("removed files, the rest", partial(self._look_at, logs, before))
                break
        if grown:
            self._scheduler.aside(lambda: [(key, path) for key, path in grown if _is_gone(path)], self._missing)

    def _missing(self, missing: object) -> None:
        for key, path in missing if isinstance(missing, list) else ():
            log = self._partitions.logs.get(key)
            # Meanwhile it may have been replaced, or have rolled.
            if log is not None and not log.is_offline and log.segments.active.log.path == path and _is_gone(path):
                log.go_offline(
                    "check of its files", StorageError("another process removed the file that is being written", path=path)
                )


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # It is unknown whether the file is gone; the next write shows it.
        return False
    return False
