"""Replicas of one partition under leaders that come and go, over a way that loses requests: at last all logs are the leader's."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.broker.replicas.simulated_leader import SimulatedLeader, Simulation, until
from tests.examples import examples
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch, headers, open_log
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog

KEY = TopicPartition("orders", 0)
FIRST_ID = 11

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 2)),
        st.tuples(st.just("write"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("catch up"), st.integers(1, 2)),
        st.tuples(st.just("lose"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
    ),
    min_size=3,
    max_size=14,
)


class Replicas:
    """Three replicas; the one that leads is followed by the others."""

    def __init__(self, directory: Path, version: int, fetch_bytes: int) -> None:
        self.directory = directory
        self.logs = [self.open(number) for number in range(3)]
        self.leaders = [SimulatedLeader() for _ in self.logs]
        self.version, self.fetch_bytes = version, fetch_bytes
        self.leader, self.epoch = 0, 0
        self.written = 0
        self.leaders[0].lead(KEY, self.logs[0], 0)

    def open(self, number: int, start: int = 0) -> PartitionLog:
        folder = self.directory / str(number)
        folder.mkdir(exist_ok=True)
        return open_log(folder, topic_id=None, log_start_offset=start, segment_bytes=2000, index_interval_bytes=100)

    def elect(self, number: int) -> None:
        for leader in self.leaders:
            leader.led.clear()
        self.leader, self.epoch = number, self.epoch + 1
        self.leaders[number].lead(KEY, self.logs[number], self.epoch)

    def write(self, batches: int, count: int) -> None:
        for _ in range(batches):
            self.written += 1
            value = f"{self.written} by {self.leader}".encode()
            self.logs[self.leader].append_as_leader(batch(count=count, value=value), self.epoch)
        log = self.logs[self.leader]
        log.update_high_watermark(log.log_end_offset - count)

    def restart(self, number: int) -> None:
        start = self.logs[number].log_start_offset  # A broker keeps it in a checkpoint.
        self.logs[number].close()
        self.logs[number] = self.open(number, start)
        if number == self.leader:
            self.leaders[number].led[KEY].log = self.logs[number]

    async def catch_up(self, rounds: int, losing: int) -> None:
        """Let each follower get some of what it lacks: all of it where `rounds` is 0."""
        leader, source = self.leaders[self.leader], self.logs[self.leader]
        for number, log in enumerate(self.logs):
            if number == self.leader:
                continue
            settings: Any = {"replica_fetch_max_bytes": self.fetch_bytes, "replica_fetch_wait_max_ms": 1}
            async with Simulation(leader, fetch_version=self.version, **settings) as simulation:
                leader.requests.clear()
                simulation.fetchers.follow(1, [leader.followed(KEY, log)])
                await until(lambda: bool(simulation.channels))
                simulation.channels[0].losing = losing
                if rounds:
                    await until(lambda: len(leader.requests) >= rounds)
                else:
                    led = leader.led[KEY]
                    await until(lambda: led.fetched == source.log_end_offset == log.log_end_offset)  # noqa: B023
            assert not simulation.failed

    def close(self) -> None:
        for log in self.logs:
            log.close()


def content(log: PartitionLog, start: int) -> list[tuple[int, int, int, int]]:
    """What identifies each batch: its offsets, epoch, and checksum."""
    return [(one.base_offset, one.last_offset, one.leader_epoch, one.crc) for one in headers(log) if one.last_offset >= start]


@examples(60)
@example(steps=[("write", 2, 1), ("delete", 0), ("restart", 0)], version=11, fetch_bytes=150)
@given(steps=STEPS, version=st.sampled_from([11, 12, 17]), fetch_bytes=st.sampled_from([150, 100_000]))
def test_all_end_with_the_leaders_log(steps: list[tuple[Any, ...]], version: int, fetch_bytes: int) -> None:
    async def test(directory: Path) -> None:
        replicas = Replicas(directory, version, fetch_bytes)
        losing = 0
        try:
            for kind, *rest in steps:
                if kind == "elect":
                    replicas.elect(*rest)
                elif kind == "write":
                    replicas.write(*rest)
                elif kind == "lose":
                    losing = rest[0]
                elif kind == "restart":
                    replicas.restart(*rest)
                elif kind == "delete":
                    log = replicas.logs[replicas.leader]
                    log.maybe_increment_log_start_offset(max(log.high_watermark - rest[0], 0))
                    log.delete_old_segments()
                else:
                    await replicas.catch_up(rest[0], losing)
                    losing = 0
            replicas.write(1, 2)
            await replicas.catch_up(0, losing)
            source = replicas.logs[replicas.leader]
            start = source.log_start_offset
            for log in replicas.logs:
                assert content(log, start) == content(source, start)
                assert log.log_start_offset <= start and log.high_watermark <= log.log_end_offset
                own = [entry for entry in log.leader_epochs.entries if entry.start_offset > start]
                assert own == [entry for entry in source.leader_epochs.entries if entry.start_offset > start]
        finally:
            replicas.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(asyncio.wait_for(test(Path(directory)), PATIENCE_S))
