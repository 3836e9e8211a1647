"""The job `migrate` on the folder of Kafka 2.4.1. What it does to each segment: tests/check/test_migration.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.check.test_migration import contents, faults, records
from tests.reader.build import LogBuilder, batch, marker
from tests.reader.golden import GOLDEN
from tidelog.errors import CorruptBatchError, InvalidArgumentError
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.spark.jobs.migrate import migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = GOLDEN / "kafka-2.4.1" / "log"


def test_a_folder_that_kafka_wrote(spark: SparkSession, tmp_path: Path) -> None:
    before = contents(SOURCE)
    heard: list[tuple[int, int]] = []
    result = migrate(spark, SOURCE, tmp_path / "new", progress=lambda *how_far: heard.append(how_far))
    assert contents(SOURCE) == before and result.faults == 0
    assert heard and heard[-1][0] == heard[-1][1] > 0
    rows = result.rows.collect()
    segments = {(path.parent.name, int(path.stem)): path.stat().st_size for path in SOURCE.rglob("*.log")}
    assert {(f"{row.topic}-{row.partition}", row.base_offset): row.old_bytes for row in rows} == segments
    topics = LogDir(SOURCE).topics()
    for topic, partitions in topics.items():
        for partition in partitions:
            old, new = records(SOURCE, topic, partition), records(tmp_path / "new", topic, partition)
            assert new == [record._replace(timestamp_type=max(record.timestamp_type, CREATE_TIME)) for record in old]
            assert sum(row.records for row in rows if (row.topic, row.partition) == (topic, partition)) == len(old)
    assert faults(tmp_path / "new") == []
    lines = {line[0]: line for line in result.summary.rows}
    assert lines.keys() == topics.keys()
    assert lines["migrated-v0-v1-v2"][-1] == "v0, v1, v2" and lines["v2-none-ct"][4] == 0


def test_transactions_and_damage(spark: SparkSession, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "old" / "t-0").append(batch(0, [1000], magic=1))
    builder.append(batch(1, [2000], producer=Producer(7, 0, 0), transactional=True)).roll()
    builder.append(marker(2, 3000, ControlType.ABORT, 7)).close()
    migrate(spark, tmp_path / "old", tmp_path / "new")
    with LogDir(tmp_path / "new").log("t", 0) as log:
        assert [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(0, 10)] == [(7, 1)]
    with pytest.raises(InvalidArgumentError, match="not empty"):
        migrate(spark, tmp_path / "old", tmp_path / "new")
    path = builder.file(0, ".log")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CorruptBatchError) as raised:
        migrate(spark, tmp_path / "old", tmp_path / "second")
    assert raised.value.path == str(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new", "old"]
