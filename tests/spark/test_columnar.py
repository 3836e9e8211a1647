"""Columns or rows: the same answers, and both ways are really there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.golden import log_dir
from tidelog.spark.columnar import read_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERYTHING = {"subscribePattern": ".*", "includeHeaders": "true"}


@pytest.fixture
def by_rows(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside the tests' own that reads rows: `register` has not touched it."""
    from tidelog.spark.source import TidelogDataSource

    other = spark.newSession()
    other.dataSource.register(TidelogDataSource)
    yield other


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def test_the_same_rows_both_ways(spark: SparkSession, by_rows: SparkSession) -> None:
    def everything(session: SparkSession) -> DataFrame:
        return session.read.format("tidelog").options(path=log_dir(), **EVERYTHING).load()

    assert "ColumnarToRow" in plan(everything(spark))
    assert "ColumnarToRow" not in plan(everything(by_rows))
    found, expected = everything(spark).collect(), everything(by_rows).collect()
    assert len(found) > 1_000
    assert found == expected


def test_few_columns_limits_and_two_scans(load: Callable[..., DataFrame], by_rows: SparkSession) -> None:
    def answers(frame: DataFrame) -> list[Any]:
        keyed = frame.where("key is not null").select("key", "offset", "timestamp")
        return [
            frame.limit(5).count(),
            keyed.groupBy("key").count().orderBy("key").collect(),
            keyed.join(frame.select("key", "value"), "key").count(),
            keyed.union(keyed).count(),
            frame.cache().where("partition = 0").count(),
        ]

    rows = by_rows.read.format("tidelog").options(path=log_dir(), subscribe="v2-zstd-ct").load()
    assert answers(load("v2-zstd-ct")) == answers(rows)


def test_again_is_without_effect(spark: SparkSession) -> None:
    methods: Any = spark._jsparkSession.experimental()  # type: ignore[union-attr]
    before = methods.extraOptimizations().length()
    assert read_columns(spark)
    assert methods.extraOptimizations().length() == before


def test_it_can_be_turned_off_and_failing_leaves_rows(
    by_rows: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_rows.conf.set("spark.tidelog.columnarReads", "false")
    assert not read_columns(by_rows)
    by_rows.conf.unset("spark.tidelog.columnarReads")
    # Another Spark, where a method is gone, is an error of the compiler.
    broken = tmp_path / "Broken.java"
    broken.write_text("package tidelog.spark; public final class ColumnarReads { void f() { gone(); } }")
    monkeypatch.setattr("tidelog.spark.columnar._SOURCE", broken)
    with caplog.at_level("INFO", logger="tidelog.spark"):
        assert not read_columns(by_rows)
    assert "rows, not columns" in caplog.text
    frame = by_rows.read.format("tidelog").options(path=log_dir(), subscribe="v2-zstd-ct").load()
    assert "ColumnarToRow" not in plan(frame)
    assert frame.count() > 0


@pytest.mark.interop
def test_streams_both_ways(spark: SparkSession, by_rows: SparkSession, tmp_path: Path) -> None:
    def streamed(session: SparkSession, folder: Path) -> tuple[list[Any], int]:
        rows: list[Any] = []
        stream = session.readStream.format("tidelog").options(path=log_dir(), startingOffsets="earliest", **EVERYTHING).load()
        query = (
            stream.select("topic", "partition", "offset", "value", "headers")
            .where("offset > 1")
            .writeStream.foreachBatch(lambda batch, number: rows.extend(batch.collect()))
            .option("checkpointLocation", str(folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(rows, key=repr), sum(progress["numInputRows"] for progress in query.recentProgress)

    found, expected = streamed(spark, tmp_path / "columns"), streamed(by_rows, tmp_path / "rows")
    assert len(found[0]) > 1_000
    assert found == expected
