"""Commits to a folder as the driver does them, without Spark: topics, order, replays, several queries at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.examples import IS_SOAK
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats.dir_lock import DirLock
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.spark.sink.folder_target import commit_to_folder, partition_counts
from tidelog.spark.sink.row_batches import RowBatches
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink.spool import Spool
from tidelog.storage.folder.folder_topics import read_topics

NOW_MS = 1_700_000_000_000


def options(directory: Path, query: str = "q", **given: str) -> SinkOptions:
    return parse_sink_options({"path": str(directory), **given}, streaming=True).for_query(query)


def commit(chosen: SinkOptions, batch_id: int | None, *tasks: list[str]) -> None:
    spooled = []
    for values in tasks:
        rows = pa.record_batch({"value": pa.array(values, pa.string()), "key": pa.array([value[:1] for value in values])})
        with partition_counts(chosen) as partitions, Spool(None, "test", batch_id) as spool:
            made = RowBatches(rows.schema, chosen, partitions, ManualClock(NOW_MS))
            for key, batch in [*made.add(rows), *made.finish()]:
                spool.add(key, batch)
            spooled.append(spool.finish())
    commit_to_folder(chosen, spooled, batch_id, ManualClock(NOW_MS))


def values(directory: Path, topic: str) -> list[str]:
    column: Any = tidelog.scan(directory, topic).read_all()["value"]
    return [value.decode() for value in column.to_pylist()]


def test_topics_come_with_their_first_rows(tmp_path: Path) -> None:
    chosen = options(tmp_path / "new", topic="a", partitions="3", **{"topic.segment.bytes": "5000"})
    commit(chosen, 0, ["a1", "b1", "c1"], ["a2", "b2"])
    topics = read_topics(tmp_path / "new")
    assert (topics["a"].partitions, topics["a"].properties) == (3, {"retention.ms": "-1", "segment.bytes": "5000"})
    assert sorted(values(tmp_path / "new", "a")) == ["a1", "a2", "b1", "b2", "c1"]
    # Another number is said: what is there counts.
    commit(options(tmp_path / "new", topic="a", partitions="7"), 1, ["a3"])
    found = values(tmp_path / "new", "a")
    assert [value for value in found if value[0] == "a"] == ["a1", "a2", "a3"]


def test_a_batch_comes_once_and_another_query_is_another(tmp_path: Path) -> None:
    for batch_id in (0, 0, 1, 1):
        commit(options(tmp_path, topic="a"), batch_id, [f"x{batch_id}"])
    commit(options(tmp_path, "another", topic="a"), 0, ["x another"])
    with pytest.raises(InvalidArgumentError, match="checkpoint is older"):
        commit(options(tmp_path, topic="a"), 0, ["x"])
    for _ in range(2):
        commit(options(tmp_path, topic="a").for_query(None), None, ["x write"])
    assert values(tmp_path, "a") == ["x0", "x1", "x another", "x write", "x write"]


@pytest.mark.parametrize("foreign", ["photo.jpg", "bin/"])
def test_a_folder_of_other_things_is_left_alone(tmp_path: Path, foreign: str) -> None:
    """Somebody has mistaken the path."""
    if foreign.endswith("/"):
        (tmp_path / foreign).mkdir()
    else:
        (tmp_path / foreign).touch()
    with pytest.raises(StorageError, match="is not a data folder"):
        commit(options(tmp_path, topic="a"), 0, ["x"])
    assert [path.name for path in tmp_path.iterdir()] == [foreign.rstrip("/")]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    chosen = options(tmp_path, topic="a")
    commit(chosen, 0, ["x"])
    with DirLock(tmp_path), pytest.raises(StorageError, match="running broker"):
        commit(chosen, 1, ["y"])
    with Spool(None, "test", 1) as spool:
        spool.add(TopicPartition("a", 1), build_batch_v2([Record(0, NOW_MS, CREATE_TIME, None, b"y")]))
        spooled = spool.finish()
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'a' has no partition 1"):
        commit_to_folder(chosen, [spooled], 1)
    assert values(tmp_path, "a") == ["x"]
    commit(chosen, 1, ["y"])
    assert values(tmp_path, "a") == ["x", "y"]


def test_queries_that_write_at_the_same_time(tmp_path: Path) -> None:
    def run(query: str) -> None:
        chosen = options(tmp_path, query, topic=f"topic-{query[-1]}")
        for batch_id in range(4):
            commit(chosen, batch_id, [f"{query} {batch_id}"])

    queries = [f"query {n}" for n in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(run, query) for query in queries]:
            done.result(timeout=120)
    found = values(tmp_path, "topic-0") + values(tmp_path, "topic-1") + values(tmp_path, "topic-2") + values(tmp_path, "topic-3")
    assert found == [f"{query} {batch_id}" for query in queries for batch_id in range(4)]


PROGRAM = """
import sys
from pathlib import Path
from tests.spark.test_sink_folder import commit, options
directory, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for batch_id in range(first, last):
    print(batch_id, flush=True)
    tasks = [[f"{c} {batch_id} {n}" for c in "abcdefg"] for n in range(2)]
    commit(options(directory, topic="a", partitions="3"), batch_id, *tasks)
"""


KILLS = 30 if IS_SOAK else 6


def batches_from(directory: Path, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(directory), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])


@pytest.mark.interop
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """As a driver does that is killed: the last batch is repeated, by another process."""
    chance = random.Random(0)
    started = 0
    for _ in range(KILLS):
        with batches_from(tmp_path / "data", started, 1_000_000) as program:
            assert program.stdout is not None
            until = started + chance.randrange(1, 7)
            for line in program.stdout:
                started = int(line)
                if started == until:
                    time.sleep(chance.random() * 0.1)  # a moment within the commit, or a later one's
                    os.kill(program.pid, signal.SIGKILL)
                    started = int((program.stdout.read().split() or [line])[-1])
                    break
        assert program.returncode == -signal.SIGKILL
    batches = started + 2
    with batches_from(tmp_path / "data", started, batches) as program:
        program.communicate(timeout=120)
    assert program.returncode == 0
    wanted = Counter(f"{c} {batch_id} {n}" for c in "abcdefg" for batch_id in range(batches) for n in range(2))
    assert Counter(values(tmp_path / "data", "a")) == wanted
