"""A manager that was abandoned leaves its folder alone: another one may have it by then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.managers import die, fill, managed, started
from tests.storage.members import Cluster, formatted, member
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tidelog.clock import ManualClock
from tidelog.errors import LogOfflineError
from tidelog.storage.log_manager import LogManager
from tidelog.storage.scheduler import Task
from tidelog.storage.segment.descriptors import forget_closer

COMPACTED: dict[str, Any] = {
    "cleanup.policy": "compact",
    "segment.bytes": 300,
    "segment.index.bytes": 4096,  # `content` reads the whole files.
    "file.delete.delay.ms": 1000,
}
RECORDS = 10
"""Enough for two groups of segments, each of which is written, swapped and deleted in steps of its own; each step is a case."""

End = Callable[[LogManager], None]


class LateThreads:
    """Work of other threads, that is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Task, Callable[[object], None]]] = []

    def __call__(self, work: Task, done: Callable[[object], None]) -> None:
        self.waiting.append((work, done))

    def do_next(self) -> None:
        work, done = self.waiting.pop(0)
        result: object
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)


def content(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file: its inode, its modification time and its bytes."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def in_mid_air(directory: Path, threads: LateThreads | None, steps: int) -> tuple[LogManager, bool]:
    """A manager whose compaction has made so many steps; whether it still has work."""
    manager = started(directory)
    manager.tick()  # The cleaner's first check; the next one is due later.
    manager.create_topic("t", 1, COMPACTED)
    log = manager.log("t", 0)
    for number in range(RECORDS):
        log.append_as_leader(batch(timestamp=NOW_MS + number, key=b"key %d" % (number % 3)), 0)
    log.update_high_watermark(log.log_end_offset)
    manager.tick()
    manager.scheduler.elsewhere = threads
    cleaner, is_at_work = manager.cleaner, True
    assert cleaner is not None
    if threads is None:
        for _ in range(steps):
            is_at_work = is_at_work and cleaner.work(1)
    else:
        cleaner.start(manager.scheduler, backoff_ms=1)
        for _ in range(steps):
            manager.scheduler.tick(is_slice=True)
            if threads.waiting:
                threads.do_next()
        is_at_work = cleaner.last_stats is None
    return manager, is_at_work


def dropped(manager: LogManager) -> None:
    """No one has ended it: it is only garbage."""
    forget_closer(manager._running.partitions.give_descriptors_back)
    die(manager)


def check_left_alone(directory: Path, end: End, threads: LateThreads | None, steps: int) -> bool:
    """Abandon a manager after so many steps. Return whether the pass was still in progress."""
    gc.freeze()  # The collection below need not look at what other tests have left.
    manager, is_at_work = in_mid_air(directory, threads, steps)
    end(manager)
    with managed(directory) as other:
        log = other.log("t", 0)
        log.append_as_leader(batch(timestamp=NOW_MS, key=b"of the other"), 0)
        log.flush()
        before = content(directory)
        while threads is not None and threads.waiting:
            threads.waiting.pop(0)[1](None)
        is_collected = weakref.ref(manager._running.work if end is dropped else manager)
        del manager
        gc.collect()
        assert is_collected() is None
        assert content(directory) == before
        assert offsets(log)[-1] == RECORDS
    return is_at_work


@pytest.mark.parametrize("end", [LogManager.abort, dropped])
@pytest.mark.parametrize("has_threads", [False, True])
def test_a_pass_in_mid_air(tmp_path: Path, end: End, has_threads: bool) -> None:
    """The garbage collector must not end it, at none of its steps, and late results of other threads must not continue it."""
    number, is_at_work = 0, True
    while is_at_work:
        is_at_work = check_left_alone(tmp_path / str(number), end, LateThreads() if has_threads else None, number)
        number += 1
    assert number >= (12 if has_threads else 9)


def test_tasks_that_are_due_later(tmp_path: Path) -> None:
    """Deletions, checkpoints, retention, flushes: a late tick runs none of them."""
    manager, _ = in_mid_air(tmp_path, None, 1000)
    log = manager.log("t", 0)
    assert list(log.directory.glob("*.deleted"))
    manager.delete_topic("t")
    manager.create_topic("other", 1, {"retention.ms": 1})
    fill(manager.log("other", 0), 5)
    manager.abort()
    with managed(tmp_path):
        before = content(tmp_path)
        assert isinstance(manager.clock, ManualClock)
        manager.clock.advance(10_000_000)
        assert not manager.tick()
        with pytest.raises(LogOfflineError):
            log.append_as_leader(batch(), 0)
        assert content(tmp_path) == before


def test_a_replica_that_is_being_deleted(tmp_path: Path) -> None:
    """Its abandoned steps write no checkpoint."""
    cluster = Cluster()
    cluster.create("a", 40, cleanup_policy="compact")
    manager = member(formatted(tmp_path), cluster)
    assert manager.cleaner is not None
    for key in manager.partitions():
        manager.cleaner.manager.update_checkpoint(key, 0)
    steps = manager.replicas.deletion(manager.partitions())
    next(steps)
    manager.abort()
    before = content(tmp_path)
    del steps, manager
    gc.collect()
    assert content(tmp_path) == before
