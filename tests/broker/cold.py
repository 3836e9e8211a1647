"""Logs that are not in memory.

`forget` drops files from the page cache. How much then has to be waited for is the disk's secret: a quick one has the bytes
before anybody asks twice. `ColdDisk` is slow whatever the disk: what is read for the first time is never in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tidelog.broker.server import answer_writer
from tidelog.formats import non_blocking_read
from tidelog.formats.non_blocking_read import NotCachedError


def forget(directory: Path) -> None:
    """Write the files of a folder to their disk and drop them from memory, where the system does that."""
    for path in directory.iterdir():
        if path.suffix == ".tmp":
            continue  # Another thread of the broker writes it, and gives it its name.
        fd = os.open(path, os.O_RDWR)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class ColdDisk:
    """Counts how often a broker's loop was spared a wait."""

    def __init__(self, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spared = 0
        self._warm: set[tuple[int, int]] = set()
        self._read = non_blocking_read._read_cached
        run = broker.node.blocking.run

        def counted(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
            self.spared += 1
            run(work, done)

        monkeypatch.setattr(broker.node.blocking, "run", counted)
        monkeypatch.setattr(non_blocking_read, "_read_cached", self._read_cold)
        monkeypatch.setattr(answer_writer, "is_in_memory", self._leave_to_others)

    def _read_cold(self, fd: int, buffer: memoryview, position: int) -> int:
        if self._is_new(fd, position):
            raise NotCachedError(fd, position, len(buffer))
        return self._read(fd, buffer, position)

    def _leave_to_others(self, _: object) -> bool:
        self.spared += 1
        return False

    def _is_new(self, fd: int, position: int) -> bool:
        place = (os.fstat(fd).st_ino, position)
        is_new = place not in self._warm
        self._warm.add(place)
        return is_new
