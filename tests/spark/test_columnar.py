"""Columns or rows: the same answers, and both ways are really there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.reader.build import LogBuilder
from tests.spark.golden import log_dir
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.spark import columnar
from tidelog.spark.columnar import columns_jar, read_columns
from tidelog.spark.options import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERYTHING = {"subscribePattern": ".*", "includeHeaders": "true"}


@pytest.fixture
def by_rows(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside the tests' own that reads rows."""
    other = spark.newSession()
    other.conf.set("spark.tidelog.columnarReads", "false")
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


@pytest.mark.parametrize("nulls", [0.0, 0.1, 1.0])
def test_any_rows_are_the_same_both_ways(
    nulls: float, load: Callable[..., DataFrame], by_rows: SparkSession, tmp_path: Path
) -> None:
    """Null and empty keys and values, long ones, headers, late and equal times, in batches whose sizes are no multiples of 8."""
    chance = random.Random(int(nulls * 10))

    def some_bytes() -> bytes | None:
        return None if chance.random() < nulls else chance.randbytes(chance.choice((0, 1, 7, 8, 100, 5000)))

    builder, offset = LogBuilder(tmp_path / "any-0"), 0
    for _ in range(30):
        count = chance.randint(1, 99)
        headers = (("h", some_bytes()), ("", b"")) if chance.random() < 0.5 else ()
        records = [
            Record(offset + number, chance.randrange(1 << 41), 0, some_bytes(), some_bytes(), headers) for number in range(count)
        ]
        builder.append(bytes(build_batch_v2(records, codec=chance.choice(list(Codec)))))
        offset += count
    builder.close()
    options = {"path": str(tmp_path), "subscribe": "any", "columns": ",".join(COLUMNS)}
    for number in (1, 5):
        rows = by_rows.read.format("tidelog").options(**options, minPartitions=number).load()
        assert "ColumnarToRow" not in plan(rows)
        columns = load(**options, minPartitions=number)
        assert "ColumnarToRow" in plan(columns)
        assert columns.count() == offset
        assert columns.collect() == rows.collect()


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


def test_it_can_be_turned_off_and_on_at_any_time(by_rows: SparkSession) -> None:
    def loaded() -> DataFrame:
        return by_rows.read.format("tidelog").options(path=log_dir(), subscribe="v2-zstd-ct").load()

    assert not read_columns(by_rows)
    assert "ColumnarToRow" not in plan(loaded())
    # A new session needs no registration.
    by_rows.conf.unset("spark.tidelog.columnarReads")
    assert "ColumnarToRow" in plan(loaded())
    assert read_columns(by_rows)


def test_the_jar_is_made_of_the_source(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert spark.version in columnar.TESTED
    monkeypatch.setattr("tidelog.spark.columnar.private_cache_folder", lambda: tmp_path)
    made = columnar._jar_for(spark._jvm, spark.version)
    assert made.parent == tmp_path
    assert made.read_bytes() == columns_jar().read_bytes(), "python -m tests.spark.make_columns_jar makes it again"


def test_another_spark_leaves_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A session without the jar, on a release where a method is gone: that is an error of the compiler."""
    broken = tmp_path / "Broken.java"
    broken.write_text("package tidelog.spark; public final class ColumnarReads { void f() { gone(); } }")
    monkeypatch.setattr("tidelog.spark.columnar._SOURCES", (broken,))
    monkeypatch.setattr("tidelog.spark.columnar._PACKAGE", "another.")
    monkeypatch.setattr("tidelog.spark.columnar.TESTED", ())
    monkeypatch.setattr("tidelog.spark.columnar._warned", set())
    assert not read_columns(spark)
    assert not read_columns(spark)
    assert caplog.text.count("instead of columns") == 1
    assert "gone" in caplog.text


class Guarded:
    """A session of a platform whose Py4J lets Python call few methods: it fails as Py4J does there, whatever is called."""

    version = "4.3.0"

    def __init__(self, error: type[Exception]) -> None:
        self._error = error
        self.registered: list[type] = []
        self.conf: Any = self
        self.dataSource: Any = self

    def get(self, name: str, default: str) -> str:
        return default

    def register(self, source: type) -> None:
        self.registered.append(source)

    def __getattr__(self, name: str) -> Any:
        raise self._error(f"py4j.security.Py4JSecurityException: {name} is not allowed\n\tat java.base/...")


@pytest.mark.parametrize("error", ["Py4JError", "Py4JNetworkError", "TypeError"])
def test_a_session_that_forbids_methods_is_registered_and_reads_rows(
    error: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import py4j.protocol

    from tidelog.spark import register

    guarded: Any = Guarded(getattr(py4j.protocol, error, TypeError))
    monkeypatch.setattr("tidelog.spark.columnar._warned", set())
    if error == "TypeError":  # raised by what is called, not by the session's own properties
        guarded.sparkContext = type("Context", (), {"environment": {}, "defaultParallelism": 3})()
    register(guarded)
    register(guarded)
    assert [source.__name__ for source in guarded.registered] == ["TidelogDataSource"] * 2
    assert caplog.text.count("is not allowed") == caplog.text.count("instead of columns") == 1
    assert "\tat java" not in caplog.text


def test_a_session_that_nobody_made_ready_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.types import StructType

    from tidelog.spark.columns import spark_schema
    from tidelog.spark.options import COLUMNS
    from tidelog.spark.source import TidelogDataSource, source_class

    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    options = {"path": log_dir(), "subscribe": "v2-zstd-ct"}
    schema: StructType = spark_schema(COLUMNS[:-2])
    source_class(2)(dict(options)).reader(schema).partitions()
    source_class(None)(dict(options)).streamReader(schema)
    assert "instead of columns" not in caplog.text
    TidelogDataSource(dict(options)).reader(schema).partitions()
    TidelogDataSource(dict(options)).reader(schema).partitions()
    TidelogDataSource(dict(options)).streamReader(schema)
    assert caplog.text.count(f"spark.jars={columns_jar()}") == 1


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
