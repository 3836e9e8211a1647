"""A follower's folder answers by time as a walk through its records does, however often its log was cut and written again.

Leaders and followers are real logs. At an election the new leader has less than the old one; the follower cuts what it has beyond
that, and gets other batches in the place, often of the same size, with other times. What lies beside the log stays as the
follower leaves it: indexes, and time maps that were made at some moment.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.enemy.truth import PartitionTruth, read_partition
from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, headers, open_log, timed
from tidelog.model import MAX_TIMESTAMP, TopicPartition
from tidelog.reader.time_map_file import write_time_map
from tidelog.storage.partition.partition_log import PartitionLog

KEY = TopicPartition("log", 0)


class Replicas:
    """A leader and a follower of one partition."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.settings = {
            "segment_bytes": rng.choice([300, 1000, 5000]),
            "index_interval_bytes": rng.choice([0, 100, 4096]),
        }
        self.folders = [folder / "leader", folder / "follower"]
        for one in self.folders:
            one.mkdir()
        self.leader, self.follower = (open_log(one, **self.settings) for one in self.folders)
        self.epoch = 0
        self.second = 0

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            self.second += self.rng.choice([0, 1, 1, 5])
            times = [
                NOW_MS + 1000 * (self.second - self.rng.choice([0, 0, 0, 1, 9, 60])) for _ in range(self.rng.randrange(1, 4))
            ]
            self.leader.append_as_leader(timed(times), self.epoch)

    def follow(self) -> None:
        """Fetch for a while, seldom to the end."""
        for _ in range(self.rng.randrange(1, 12)):
            at = self.follower.log_end_offset
            if at >= self.leader.log_end_offset:
                break
            data = self.leader.read(at, self.rng.choice([1, 200, 2000])).data
            self.follower.append_as_follower(bytes(data), self.epoch)
            if self.rng.random() < 0.2:
                self.follower.roll()

    def elect(self) -> None:
        """Make a leader of a log that has less than the old one, and have the follower cut what that does not have."""
        starts = [header.base_offset for header in headers(self.leader)]
        self.leader.truncate_to(self.rng.choice([*starts[-8:], self.leader.log_end_offset]))
        self.epoch += 1
        self.second = max(0, self.second - self.rng.choice([0, 3, 50]))
        self.follower.truncate_to(self.leader.log_end_offset)

    def map(self) -> None:
        for path in sorted(self.follower.directory.glob("*.log")):
            if path.stat().st_size and self.rng.random() < 0.7:
                write_time_map(path, block_bytes=self.rng.choice([128, 1024]))

    def reopen(self) -> None:
        """End cleanly, or by being killed: then what lies in the folder is recovered."""
        if self.rng.random() < 0.5:
            self.follower.flush()
            self.follower.close()
            self.follower = open_log(self.folders[1], recovery_point=self.follower.log_end_offset, **self.settings)
        else:
            recovery_point = self.follower.recovery_point
            left = self.folders[1].with_name(f"{self.folders[1].name}x")
            shutil.copytree(self.folders[1], left)
            self.follower.close()
            self.folders[1] = left
            self.follower = open_log(left, clean=False, recovery_point=recovery_point, **self.settings)

    def close(self) -> None:
        self.leader.close()
        self.follower.close()


def check(log: PartitionLog, folder: Path, rng: random.Random) -> None:
    """Ask the broker's log, a reader of its folder, and an exact range, each by time."""
    truth = read_partition(log.directory, KEY, log.log_start_offset)
    assert truth.end == log.log_end_offset
    known = sorted({row.timestamp for row in truth.rows})
    times = [time + shift for time in rng.sample(known, min(len(known), 6)) for shift in (0, 1)]
    found = [log.fetch_offset_by_timestamp(time) for time in times]
    assert [None if one is None else (one.offset, one.timestamp) for one in found] == [truth.find(time) for time in times]
    with tidelog.LogDir(folder).log(*KEY) as reading:
        answers = [tidelog.find_offset(reading, time) for time in [*times, MAX_TIMESTAMP]]
    true = [*(truth.find(time) for time in times), truth.find_max()]
    assert [None if one is None else (one.offset, one.timestamp) for one in answers] == true
    check_range(truth, folder, times)


def check_range(truth: PartitionTruth, folder: Path, times: list[int]) -> None:
    start, end = (min(times), max(times)) if times else (0, 1)
    middle = times[len(times) // 2] if times else 0
    for first, last in ((start, middle), (middle, end), (middle, None)):
        rows = tidelog.scan(folder, KEY.topic, first, last, ["offset"]).read_all()["offset"].to_pylist()
        assert rows == [row.offset for row in truth.data(first, last)]


@examples(45)
@given(seed=st.integers(0, 2**32))
def test_a_followers_answers_are_those_of_a_walk(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    replicas = Replicas(tmp_path_factory.mktemp("replicas"), rng)
    try:
        for _ in range(12):
            step = rng.choice(["append", "append", "follow", "follow", "elect", "map", "reopen"])
            getattr(replicas, step)()
            if rng.random() < 0.4:
                check(replicas.follower, replicas.folders[1], rng)
        while replicas.follower.log_end_offset < replicas.leader.log_end_offset:
            replicas.follow()
        check(replicas.follower, replicas.folders[1], rng)
        same = [read_partition(log.directory, KEY, 0).rows for log in (replicas.leader, replicas.follower)]
        assert same[0] == same[1]
    finally:
        replicas.close()
