"""`spark.read.format("tidelog")` in a real session. Every test that needs one is in this file, so that one worker has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from tests.spark.conftest import read_rows
from tests.spark.golden import BASE_MS, RELEASES, expected, log_dir, rows
from tidelog.reader.time_map_file import rebuild_time_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_golden_topic_is_read_as_kafka_served_it(load: Load, release: str, isolation: str) -> None:
    frame = load(path=log_dir(release), subscribePattern=".*", includeHeaders="true", isolationLevel=isolation)
    committed = isolation == "read_committed"
    wanted = [row for topic in sorted(expected(release)) for row in rows(topic, release, committed=committed)]
    assert read_rows(frame) == wanted


def test_the_schema_is_the_connectors(load: Load) -> None:
    fields = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    headers = "headers array<struct<key:string,value:binary>>"
    assert load("empty").schema.simpleString() == f"struct<{fields.replace(', ', ',').replace(' ', ':')}>"
    assert all(field.nullable for field in load("empty").schema)
    assert load("empty", includeHeaders="true").schema["headers"].simpleString() == headers.replace(" ", ":", 1)
    assert load("empty", columns="offset,createTime").schema.simpleString() == "struct<offset:bigint,createTime:timestamp>"


def test_timestamps_are_instants_whatever_the_sessions_zone(spark: SparkSession, load: Load) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    frame = load("v2-none-ct", endingOffsets='{"v2-none-ct":{"0":50}}').selectExpr(
        "unix_millis(timestamp) AS ms", "CAST(timestamp AS STRING) AS text"
    )
    wanted = [row.timestamp for row in rows("v2-none-ct")[:50]]
    collected = frame.collect()
    assert [row.ms for row in collected] == wanted
    zone = ZoneInfo("America/New_York")
    shown = [datetime.strptime(f"{row.text}{'' if '.' in row.text else '.0'}", "%Y-%m-%d %H:%M:%S.%f") for row in collected]
    assert [round(time.replace(tzinfo=zone).timestamp() * 1000) for time in shown] == wanted


def test_an_exact_range_holds_the_late_records_that_a_cut_by_offset_loses(load: Load) -> None:
    topic, start, end = "v2-none-ct", BASE_MS + 20_000, BASE_MS + 90_000
    inside = [row.offset for row in rows(topic) if row.timestamp is not None and start <= row.timestamp < end]
    exact = load(topic, startTime=str(start), endTime=str(end))
    assert [row.offset for row in exact.select("offset").collect()] == inside
    cut = load(topic, startingTimestamp=str(start), endingTimestamp=str(end))
    kept = {row.offset for row in cut.select("offset").collect()}
    late = [offset for offset in inside if offset not in kept]
    assert late and max(late) > max(kept)


def test_a_range_and_offsets_hold_together(load: Load) -> None:
    topic, start = "v2-none-ct", BASE_MS + 20_000
    frame = load(topic, startTime=str(start), endingOffsets='{"v2-none-ct":{"0":300}}')
    wanted = [row.offset for row in rows(topic)[:300] if row.timestamp is not None and row.timestamp >= start]
    assert [row.offset for row in frame.select("offset").collect()] == wanted


def test_a_range_with_time_maps_is_the_same_range(load: Load, tmp_path: Path) -> None:
    for log in (Path(log_dir()) / "v2-none-ct-0").glob("*.log"):
        rebuild_time_map(log, tmp_path, block_bytes=2000)
    topic, start, end = "v2-none-ct", BASE_MS + 20_000, BASE_MS + 24_000
    inside = [row.offset for row in rows(topic) if row.timestamp is not None and start <= row.timestamp < end]
    for _ in range(2):
        frame = load(topic, startTime=str(start), endTime=str(end), timeMapDir=str(tmp_path))
        assert [row.offset for row in frame.select("offset").collect()] == inside
        shutil.copy(sorted(tmp_path.glob("*/*.timemap"))[0], sorted(tmp_path.glob("*/*.timemap"))[1])  # one that does not match


def test_append_time_and_create_time_can_both_be_read(load: Load) -> None:
    frame = load("v2-zstd-lat", columns="offset,timestamp,timestampType,createTime").selectExpr(
        "offset", "timestampType AS kind", "unix_millis(timestamp) AS appended", "unix_millis(createTime) AS created"
    )
    collected = frame.collect()
    wanted = rows("v2-zstd-lat")
    assert [(row.offset, row.appended) for row in collected] == [(row.offset, row.timestamp) for row in wanted]
    assert all(row.kind == 1 and row.created < row.appended for row in collected)


def test_records_without_timestamp_have_null(load: Load) -> None:
    frame = load("migrated-v0-v1-v2", path=log_dir("kafka-2.4.1"))
    without = sum(row.timestamp is None for row in rows("migrated-v0-v1-v2", "kafka-2.4.1"))
    assert 0 < without == frame.filter("timestamp IS NULL AND timestampType = -1").count()


def test_many_splits_give_the_same_rows(load: Load) -> None:
    frame = load("v2-gzip-ct", columns="offset", minPartitions="10")
    assert frame.rdd.getNumPartitions() >= 10
    assert [row.offset for row in frame.select("offset").collect()] == [row.offset for row in rows("v2-gzip-ct")]


def test_an_empty_topic_is_an_empty_frame(load: Load) -> None:
    assert load("empty").collect() == []
    assert load("empty").rdd.getNumPartitions() == 1


def test_sql_alone(spark: SparkSession) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW committed USING tidelog OPTIONS (path '{log_dir()}', subscribe 'transactions', "
        "isolationLevel 'read_committed', columns 'offset')"
    )
    counted = spark.sql("SELECT count(*) AS n, max(offset) AS last FROM committed").first()
    wanted = rows("transactions", committed=True)
    assert counted is not None and (counted.n, counted.last) == (len(wanted), wanted[-1].offset)
    spark.catalog.dropTempView("committed")


def test_load_takes_the_path(spark: SparkSession) -> None:
    assert spark.read.format("tidelog").option("subscribe", "two-partitions").load(log_dir()).count() == len(
        rows("two-partitions")
    )


@pytest.fixture(params=[pytest.param("false", id="no pushdown", marks=pytest.mark.interop), pytest.param("true", id="pushdown")])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """PySpark's filter pushdown off (its default; `make interop`) and on: the source takes no part either way."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield request.param
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


SPLIT = 450
"""An offset that parts `v2-none-ct` into two halves of 450."""


@pytest.mark.usefixtures("pushdown")
class TestReuse:
    """PySpark keeps the planned reader with the DataFrame. Answers must not depend on what was asked before."""

    def test_filter_then_count(self, load: Load) -> None:
        frame = load("v2-none-ct", columns="offset,timestamp")
        assert frame.filter(f"offset < {SPLIT - 1}").count() == SPLIT - 1
        assert frame.count() == 900
        assert frame.filter(f"offset >= {SPLIT}").count() == 450
        assert frame.filter(f"timestamp < timestamp_millis({BASE_MS})").count() == sum(
            row.timestamp is not None and row.timestamp < BASE_MS for row in rows("v2-none-ct")
        )

    def test_union_of_two_filtered_branches(self, load: Load) -> None:
        frame = load("v2-none-ct", columns="offset")
        union = frame.filter("offset < 10").union(frame.filter("offset >= 890"))
        assert [row.offset for row in union.collect()] == [*range(10), *range(890, 900)]

    def test_a_view_used_twice(self, spark: SparkSession, load: Load) -> None:
        load("v2-none-ct", columns="offset").createOrReplaceTempView("twice")
        assert spark.sql("SELECT * FROM twice WHERE offset < 7").count() == 7
        assert spark.sql("SELECT * FROM twice").count() == 900
        both = "SELECT offset FROM twice WHERE offset < 7 UNION ALL SELECT offset FROM twice WHERE offset >= 895"
        assert [row.offset for row in spark.sql(both).collect()] == [*range(7), *range(895, 900)]
        joined = "SELECT count(*) AS n FROM twice a JOIN twice b ON a.offset = b.offset + 1 WHERE b.offset >= 100"
        counted = spark.sql(joined).first()
        assert counted is not None and counted.n == 799
        spark.catalog.dropTempView("twice")


def test_two_loads_have_bounds_of_their_own(load: Load) -> None:
    early = load("v2-none-ct", columns="offset", endingOffsets='{"v2-none-ct":{"0":10}}')
    late = load("v2-none-ct", columns="offset", startingOffsets='{"v2-none-ct":{"0":890}}')
    assert [row.offset for row in early.union(late).collect()] == [*range(10), *range(890, 900)]
    assert (late.count(), early.count()) == (10, 10)


def test_a_wrong_option_is_one_message_at_load(load: Load) -> None:
    with pytest.raises(Exception, match=r"tidelog.errors.InvalidArgumentError: option startTime: not a time") as error:
        load("empty", startTime="monday")
    assert str(error.value).count("File ") == 1


def test_an_unknown_topic_is_one_message(load: Load) -> None:
    with pytest.raises(Exception, match=r"tidelog.errors.UnknownTopicOrPartitionError: no topic 'nowhere'") as error:
        load("nowhere").count()
    assert str(error.value).count("File ") == 1


def test_a_damaged_segment_is_one_message_with_path_and_position(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "v2-none-ct-0"
    shutil.copytree(Path(log_dir()) / "v2-none-ct-0", folder)
    log = sorted(folder.glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(Exception, match=r"tidelog\.errors\.Corrupt\w+Error: ") as error:
        load("v2-none-ct", path=str(tmp_path)).count()
    assert f"({log} at byte " in str(error.value)


def test_a_schema_of_ones_own_is_refused(spark: SparkSession) -> None:
    reader = spark.read.format("tidelog").schema("offset string").options(path=log_dir(), subscribe="empty", columns="offset")
    with pytest.raises(Exception, match="format tidelog has a fixed schema"):
        reader.load().count()


def test_the_helper_takes_the_session_that_is_there(spark: SparkSession) -> None:
    from tidelog.spark import session

    assert session("another", config={"spark.sql.shuffle.partitions": 7}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_registered_source_knows_the_sessions_cores(spark: SparkSession) -> None:
    from tidelog.spark.source import TidelogDataSource, source_class

    assert source_class(spark.sparkContext.defaultParallelism).default_parallelism == 2
    assert source_class(None).default_parallelism is None
    assert source_class(None).is_registered
    assert not TidelogDataSource.is_registered
    assert source_class(7).name() == "tidelog"
