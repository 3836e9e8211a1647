"""What another thread writes of a log that has been deleted meanwhile stays out of the folder of the next topic of that name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.managers import QUIET, managed
from tests.storage.partition_logs import batch
from tidelog.clock import ManualClock
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.storage.partition.log_flusher import RETRY_MS
from tidelog.storage.partition.partition_log import PartitionLog

Job = tuple[Callable[[], object], Callable[[object], None]]


class LateThread:
    """A thread that gets to its work when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)


def append(log: PartitionLog) -> None:
    """The first append has the topic's id and the leader epoch written."""
    log.append_as_leader(batch(), 3)


def flush(log: PartitionLog) -> None:
    append(log)
    log.flush_aside()


def truncate(log: PartitionLog) -> None:
    append(log)
    log.append_as_leader(batch(), 4)
    log.truncate_to(1)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("change", [append, flush, truncate])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_topic_is_created_again(tmp_path: Path, change: Callable[[PartitionLog], None], is_used: bool) -> None:
    """Whether or not the new one was written to before the late write, its files are its own."""
    late = LateThread()
    with managed(tmp_path, **QUIET) as manager:
        manager.create_topic("t", 1)
        manager.scheduler.elsewhere = late
        change(manager.log("t", 0))
        held, late.jobs = late.jobs, []
        assert held
        manager.delete_topic("t")
        topic = manager.create_topic("t", 1)
        log = manager.log("t", 0)
        if is_used:
            log.append_as_leader(batch(), 0)
            late.run()
        before = contents(tmp_path / "t-0")
        late.jobs = held
        late.run()
        assert contents(tmp_path / "t-0") == before
        assert not log.is_offline
        log.append_as_leader(batch(), 0)
        late.run()
        manager.scheduler.elsewhere = None
    assert read_topic_id(tmp_path / "t-0" / "partition.metadata") == topic.topic_id
    with managed(tmp_path, **QUIET) as manager:
        assert [entry.epoch for entry in manager.log("t", 0).leader_epochs.entries] == [0]


def test_a_folder_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no descriptor left the small files are written a little later; records are appended meanwhile."""
    late = LateThread()
    with managed(tmp_path, **QUIET) as manager:
        topic = manager.create_topic("t", 1)
        log = manager.log("t", 0)
        manager.scheduler.elsewhere = late

        def refuse(*_: object) -> int:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("tidelog.storage.partition.held_directory.open_file", refuse)
            log.append_as_leader(batch(), 0)
        assert not log.is_offline
        assert read_topic_id(tmp_path / "t-0" / "partition.metadata") is None
        assert isinstance(manager.clock, ManualClock)
        manager.clock.advance(RETRY_MS)
        manager.tick()
        late.run()
        assert read_topic_id(tmp_path / "t-0" / "partition.metadata") == topic.topic_id
        manager.scheduler.elsewhere = None
