"""Two replicas that are written, rolled, cut at the end and deleted at the beginning while they are compared: no false alarm."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.managers import managed, started
from tests.storage.partition_logs import batch
from tidelog.check.replicas.replicas_verify import verify_replicas
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.watermarks import FetchIsolation

LOOKS = 10


class _Pair:
    """A leader and its follower; `step` does one thing of those that brokers do."""

    def __init__(self, leader: LogManager, follower: LogManager) -> None:
        self.managers = leader, follower
        self.leader, self.follower = (manager.log("t", 0) for manager in self.managers)
        self.epoch = 0
        self.random = random.Random(3)

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.55:
            self.leader.append_as_leader(
                batch(count=self.random.randrange(1, 5), value=b"v" * self.random.randrange(200)), self.epoch
            )
        elif kind < 0.9:
            self.fetch()
        elif kind < 0.93:
            self._another_leader()
        elif kind < 0.96:
            self._delete()
        else:
            for manager in self.managers:
                manager.checkpoint_high_watermarks()
                manager.checkpoint_log_start_offsets()

    def fetch(self) -> None:
        if self.follower.log_end_offset < self.leader.log_end_offset:
            found = self.leader.read(self.follower.log_end_offset, 2000, FetchIsolation.LOG_END)
            self.follower.append_as_follower(bytes(found.data))
        for log in (self.leader, self.follower):
            log.update_high_watermark(self.follower.log_end_offset)

    def _another_leader(self) -> None:
        """The follower leads from its log's end on, and what the other one has beyond that is cut off there."""
        end = self.follower.log_end_offset
        self.leader.truncate_to(end)
        self.leader, self.follower = self.follower, self.leader
        self.epoch += 1
        self.leader.maybe_assign_epoch_start_offset(self.epoch, end)

    def _delete(self) -> None:
        """Delete records, at the follower perhaps not yet."""
        start = self.leader.log_start_offset + (self.leader.high_watermark - self.leader.log_start_offset) // 3
        self.leader.delete_records(start)
        if self.random.random() < 0.7:
            self.follower.maybe_increment_log_start_offset(min(start, self.follower.high_watermark))
            self.follower.delete_old_segments()
        self.leader.delete_old_segments()


@contextmanager
def _writing(pair: _Pair) -> Iterator[None]:
    stop, failed = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            while not stop.is_set():
                pair.step()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def test_folders_that_are_written_while_they_are_compared(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with managed(a) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 3000, "index.interval.bytes": 300})
    shutil.copytree(a, b)
    one, two = started(a), started(b)
    try:
        pair = _Pair(one, two)
        for _ in range(200):
            pair.step()
        ends: set[int] = set()
        with _writing(pair):
            for _ in range(50 * LOOKS):
                if len(ends) == LOOKS:
                    break
                report = verify_replicas([a, b], sleep=lambda _: pytest.fail("what is in order was taken for a difference"))
                (found,) = report.partitions
                if found.range is not None:
                    ends.add(found.range.end)
        assert len(ends) == LOOKS, "they were written meanwhile, and compared"
        pair.fetch()
        while pair.follower.log_end_offset < pair.leader.log_end_offset:
            pair.fetch()
    finally:
        one.shutdown()
        two.shutdown()
    (found,) = verify_replicas([a, b]).partitions
    assert found.is_equal and found.range is not None and found.range.end == pair.leader.log_end_offset
