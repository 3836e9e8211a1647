"""Backups on Spark: taken, continued by one process, verified and restored; the same as without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tests.cli.conftest import run_ok
from tidelog import NewRecord
from tidelog.backup.backup import open_backup
from tidelog.capture.capture import Selection
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets
from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.spark.jobs.backup import restore_backup, take_backup, verify_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_700_000_000_000
PARTITIONS = 3
OPTIONS: dict[str, Any] = {"log_retention_ms": -1, "num_partitions": PARTITIONS, "offsets_topic_num_partitions": 1}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[tidelog.Broker, tidelog.Broker]]:
    with (
        tidelog.Broker(data_dir=tmp_path / "source", **OPTIONS) as source,
        tidelog.Broker(data_dir=tmp_path / "target", **OPTIONS) as target,
    ):
        yield source, target


def produce(broker: tidelog.Broker, first: int, count: int) -> None:
    with tidelog.connect(broker.bootstrap_servers) as client:
        rows = [
            NewRecord(b"%d" % at, key=b"k%d" % (at % 7), timestamp=NOON + at, partition=at % PARTITIONS)
            for at in range(first, first + count)
        ]
        client.produce_many("orders", rows)


def rows(place: str) -> list[tuple[Any, ...]]:
    found = tidelog.scan(place, "orders", isolation="read_committed").read_all().to_pylist()
    return sorted((row["partition"], row["offset"], row["timestamp"], row["key"], row["value"]) for row in found)


def test_taken_continued_verified_and_restored(
    spark: SparkSession, brokers: tuple[tidelog.Broker, tidelog.Broker], tmp_path: Path
) -> None:
    source, target = brokers
    backup = tmp_path / "backup"
    produce(source, 0, 300)
    with Cluster.at(source.bootstrap_servers, "test") as cluster:
        commit_offsets(cluster, "readers", {TopicPartition("orders", 1): 42})
    take_backup(spark, source.bootstrap_servers, str(backup), Selection())
    run_ok("backup", "verify", backup)
    produce(source, 300, 60)
    run_ok("backup", source.bootstrap_servers, backup)  # One process goes on with it,
    produce(source, 360, 40)
    point = take_backup(spark, source.bootstrap_servers, str(backup), Selection())  # and the other way round.
    assert (point.sequence, point.is_cut_consistent, point.incomplete) == (3, True, ())
    assert rows(str(backup)) == rows(source.bootstrap_servers)
    report = verify_whole(spark, str(backup))
    assert report.findings == []
    assert report.files == sum(one.is_file() for one in (backup / "data").rglob("*"))

    plan = plan_restore(RestoreRequest(backup=str(backup), target=target.bootstrap_servers))
    done = restore_backup(spark, plan, tmp_path / "work")
    assert done.differences == [] and len(done.digests) == PARTITIONS
    assert rows(target.bootstrap_servers) == rows(source.bootstrap_servers)
    with Cluster.at(target.bootstrap_servers, "test") as cluster:
        assert committed_offsets(cluster, "readers")[TopicPartition("orders", 1)].offset == 42

    partition = open_backup(backup).partition(open_backup(backup).topics(point)["orders"], 1)
    piece = partition.segments[0].pieces[0]
    path = backup / open_backup(backup).key(partition, piece, ".log")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (found,) = {one.text.partition(":")[0] for one in verify_whole(spark, str(backup)).findings}
    assert found == "an object has the wrong checksum or size"
    with pytest.raises(InvalidArgumentError, match="cannot be backed up by a job"):
        take_backup(spark, str(tmp_path / "source"), str(backup), Selection())
