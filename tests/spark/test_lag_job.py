"""The job `lag`: all groups of a broker and of its folder, against what is passed each group alone, and against a count."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import run, run_ok
from tests.fields import check_fields
from tidelog import NewRecord
from tidelog.client.client import Client
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.clock import ManualClock
from tidelog.errors import NotFoundError
from tidelog.model import TopicPartition
from tidelog.sources.files.folder_groups import FolderGroups
from tidelog.spark.jobs.lag import GONE, lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_373_414_400_000  # 2013-07-10
MINUTE = 60_000
RECORDS = 10
GROUPS = {f"group-{number}": (number % (RECORDS + 1), (3 * number) % (RECORDS + 1)) for number in range(12)}
"""What each has committed in the two partitions of the topic; their records are a minute apart, the last one of now."""
PLACES = ("brokers", "folder")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    properties = {"offsets_topic_num_partitions": 3, "auto_create_topics_enable": False}
    running = RunningBroker(tmp_path_factory.mktemp("lag") / "data", ManualClock(NOW), **properties)
    running.create_topic("orders", 2)
    running.create_topic("gone", 1)
    with connect(running) as client:
        client.produce_many(
            "orders",
            [
                NewRecord(b"v%d" % at, timestamp=NOW - (RECORDS - 1 - at) * MINUTE, partition=partition)
                for at in range(RECORDS)
                for partition in (0, 1)
            ],
        )
        for group, offsets in GROUPS.items():
            commit_offsets(client.cluster, group, {TopicPartition("orders", at): offset for at, offset in enumerate(offsets)})
        commit_offsets(client.cluster, "of-the-past", {TopicPartition("gone", 0): 0})
    yield running
    running.stop()


def connect(broker: RunningBroker) -> Client:
    return tidelog.connect(broker.bootstrap_servers, clock=broker.clock)


def place(broker: RunningBroker, kind: str) -> str:
    return broker.bootstrap_servers if kind == "brokers" else str(broker.data_dir)


def behind_ms(offset: int) -> int:
    return 0 if offset == RECORDS else (RECORDS - 1 - offset) * MINUTE


@pytest.mark.parametrize("kind", PLACES)
def test_all_groups(spark: SparkSession, broker: RunningBroker, kind: str) -> None:
    heard: list[tuple[int, int]] = []
    result = lag(spark, place(broker, kind), clock=broker.clock, progress=lambda done, total: heard.append((done, total)))
    rows = {(row.group, row.topic, row.partition): row for row in result.rows.collect()}
    assert rows.keys() == {(group, "orders", at) for group in GROUPS for at in (0, 1)} | {("of-the-past", "gone", 0)}
    for group, offsets in GROUPS.items():
        for at, offset in enumerate(offsets):
            row = rows[group, "orders", at]
            assert (row.committed_offset, row.end_offset, row.lag, row.lag_ms) == (
                *(offset, RECORDS, RECORDS - offset),
                behind_ms(offset),
            )
            assert (row.next_offset is None) == (row.next_time is None) == (row.retention == "nothing unread")
            assert row.next_offset == (None if offset == RECORDS else offset)
            assert row.catches_up == ("at the end" if offset == RECORDS else "unknown")
            assert (row.lost, row.note) == (0, None)
    summary = {row[0]: dict(zip(result.summary.columns, row, strict=True)) for row in result.summary.rows}
    for group, offsets in GROUPS.items():
        found = summary[group]
        assert (found["partitions"], found["lag"]) == (2, 2 * RECORDS - sum(offsets))
        assert found["lag_ms"] == max(map(behind_ms, offsets))
    lags = [row[5] for row in result.summary.rows if row[5] is not None]
    assert lags == sorted(lags, reverse=True)
    assert heard[-1][0] == heard[-1][1] == 3
    assert result.faults == 0


@pytest.mark.parametrize("kind", PLACES)
def test_rows_are_what_is_told_of_each_group_alone(spark: SparkSession, broker: RunningBroker, kind: str) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(10_000)
    with connect(broker) as client:
        commit_offsets(client.cluster, "group-3", {TopicPartition("orders", 0): 9})
        clock.advance(5_000)
        found = {
            (row.group, row.topic, row.partition): row for row in lag(spark, place(broker, kind), clock=clock).rows.collect()
        }
        for group in GROUPS:
            alone = (
                client.group_lag(group)
                if kind == "brokers"
                else FolderGroups(str(broker.data_dir)).describe(group, clock, "read_committed", 10 * MINUTE)
            )
            for one in alone.partitions:
                row = found[group, one.topic, one.partition]
                told = (row.lag, row.lag_ms, row.group_per_second, row.topic_per_second, row.catches_up, row.time_to_end_ms)
                expected = (one.lag, one.lag_ms, one.group_per_second, one.topic_per_second)
                assert told == (*expected, one.time_to_end.catch_up.value, one.time_to_end.time_ms)
                assert row.retention == one.retention.precision.value
        commit_offsets(client.cluster, "group-3", {TopicPartition("orders", 0): 3})


@pytest.mark.parametrize("kind", PLACES)
def test_from_the_shell(spark: SparkSession, broker: RunningBroker, kind: str, tmp_path: Path) -> None:
    source = place(broker, kind)
    chosen = ("--group", "group-3", "--group", "group-9")
    done = run_ok("job", "lag", source, *chosen, "--json", "--rows", tmp_path / "rows.csv")
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert sorted(line["group"] for line in lines) == ["group-3", "group-9"]
    # Which partition is furthest behind, by the shell's own clock.
    assert {line["group"]: line["most_behind"] for line in lines} == {"group-3": "orders-0", "group-9": "orders-1"}
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    assert len(rows) == 4
    assert run("job", "lag", source, *chosen, "--max-lag", "1h").exit_code == 1
    assert run("job", "lag", source, "--group", "nobody").error == f"tidelog: there is no group 'nobody' ({source})"


def test_what_is_a_fault(spark: SparkSession, broker: RunningBroker) -> None:
    # Those that have more than nine minutes unread in one partition: nothing read of it.
    behind = sum(min(offsets) == 0 for offsets in GROUPS.values())
    at_now = ManualClock(NOW)
    assert lag(spark, str(broker.data_dir), clock=at_now, max_lag_ms=9 * MINUTE - 1).faults == behind
    assert lag(spark, str(broker.data_dir), clock=at_now, max_lag_ms=9 * MINUTE).faults == 0


def test_a_topic_that_is_gone_and_a_place_without_groups(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(broker.data_dir, copied, ignore=shutil.ignore_patterns("gone-0"))
    result = lag(spark, str(copied), ["of-the-past"], clock=broker.clock)
    (row,) = result.rows.collect()
    check_fields(row, topic="gone", partition=0, lag=None, note=GONE)
    assert result.summary.rows == (("of-the-past", "Empty", 0, 0, *(None,) * 5, 0, "classic"),)
    alone = tmp_path / "alone"
    shutil.copytree(broker.data_dir / "gone-0", alone / "gone-0")
    assert lag(spark, str(alone)).rows.count() == 0
    with pytest.raises(NotFoundError):
        lag(spark, str(tmp_path / "nowhere"))
