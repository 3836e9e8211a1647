"""A thread that is stuck on a disk outlives its broker: nobody else gets the folder until the thread has ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.loop import event_loop
from tidelog.errors import StorageError
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.storage import close_logs as closing


class Disk:
    """Syncs by threads whose name begins with `stuck` do not return until `answers` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stuck = "none"
        self.answers = threading.Event()
        self.is_waited_for = threading.Event()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)
        for module, name in ((event_loop, "AT_THE_END_S"), (closing, "STALLED_S"), (closing, "PROGRESS_S")):
            monkeypatch.setattr(module, name, 0.2)

    def _sync(self, fd: int) -> None:
        if threading.current_thread().name.startswith(self.stuck):
            self.is_waited_for.set()
            assert self.answers.wait(PATIENCE_S)
        self._fsync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.answers.set()


@pytest.mark.parametrize(
    ("stuck", "is_killed"), [("tidelog-syncing", False), ("tidelog-syncing", True), ("tidelog-closing", False)]
)
def test_the_folder_stays_locked(
    tmp_path: Path, disk: Disk, stuck: str, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`syncing` flushes full segments, `closing` closes the logs at a shutdown."""
    before = set(threading.enumerate())
    broker = tidelog.Broker(tmp_path, segment_bytes=2000).start()
    broker.create_topic("t")
    disk.stuck = stuck
    for _ in range(3):
        broker.produce("t", bytes(1000))
    if stuck == "tidelog-syncing":
        assert disk.is_waited_for.wait(PATIENCE_S)
    if is_killed:
        broker.kill()
    else:
        assert not broker.stop()
    assert f"{tmp_path} stays locked" in caplog.text
    assert is_locked(tmp_path)
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    with pytest.raises(StorageError, match="is using this folder"):
        broker.start()
    disk.answers.set()
    wait_until(lambda: not is_locked(tmp_path), "the end of the thread", PATIENCE_S)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
    with broker:
        assert [record.value for record in broker.records("t")] == [bytes(1000)] * 3
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
