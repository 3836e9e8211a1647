"""Notices logs whose files were removed while they are written: later appends are in no folder, and are lost.

The system continues taking writes to a file without a name, so that only a look says. Logs that have grown since the last look
are looked at, on another thread where there is one. A log whose file is gone goes offline: its writers are refused, and it comes
back when its folder does (`offline_partitions`), with what is there then. `background_work` owns one.
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
"""Logs that are checked between two looks at the time."""


class RemovedFiles:
    """Notices removed files. `look` belongs to the logs' thread."""

    def __init__(self, partitions: Partitions, scheduler: Scheduler) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._ends: dict[TopicPartition, int] = {}

    def look(self) -> None:
        """Look at the logs that have grown since the last time; at many of them in several slices."""
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
            # Meanwhile it may be another log, or have rolled.
            if log is not None and not log.is_offline and log.segments.active.log.path == path and _is_gone(path):
                log.go_offline("look", StorageError("another process removed the file that is being written", path=path))


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # Whether it is gone is unknown; the next write shows it.
        return False
    return False
