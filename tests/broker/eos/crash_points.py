"""A broker's data folder as kill -9 would leave it after each single append.

What a killed process leaves is what the kernel has: files as they are read by somebody else. So a copy of the folder, made within
an append on the broker's own thread, is what the next start would find had the process died there. `CrashPoints` makes one after
each append to any of a broker's logs, markers and coordinators' records among them, while a test goes from step to step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidelog.storage.partition.partition_log import PartitionLog

PROPERTIES: dict[str, Any] = {
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "log_index_size_max_bytes": 400,  # files as small as what is in them: they are copied often
}


class CrashPoint(NamedTuple):
    """The folder behind the `number`th append, which went to `topic`, in a step; `done` steps were over before."""

    number: int
    topic: str
    step: str
    done: int
    folder: Path


class CrashPoints:
    """Watches the broker of a data folder from `install` on; the copies go to `folder`."""

    def __init__(self, data_dir: Path, folder: Path) -> None:
        self.data_dir = data_dir
        self.folder = folder
        self.points: list[CrashPoint] = []
        self._step = ""
        self._done = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Watch for the rest of the test, or of `patch.context()`."""
        append = PartitionLog.append_as_leader

        def append_and_copy(log: PartitionLog, *arguments: Any, **more: Any) -> Any:
            info = append(log, *arguments, **more)
            if self._step and log.directory.parent == self.data_dir:
                self._copy(log.directory.name.rpartition("-")[0])
            return info

        patch.setattr(PartitionLog, "append_as_leader", append_and_copy)

    def step(self, name: str, act: Callable[[], object]) -> None:
        """Do something that a client gets the end of. What is appended meanwhile belongs to it."""
        self._step = name
        act()
        self._step = ""
        self._done += 1

    def _copy(self, topic: str) -> None:
        target = self.folder / f"crash-{len(self.points)}"
        # A file that another thread removes or renames at this moment is as a crash might find it, too.
        with suppress(shutil.Error):
            shutil.copytree(self.data_dir, target)
        self.points.append(CrashPoint(len(self.points), topic, self._step, self._done, target))
