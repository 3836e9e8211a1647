"""`readStream` in a real session: triggers, checkpoints, and what a user sees of an error and of the lag."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tests.spark.conftest import read_rows
from tests.spark.golden import Row, log_dir, rows
from tests.spark.test_stream_folder import NOON, fill, retention
from tidelog import NewRecord
from tidelog.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Sink:
    """Collects what each batch brings. A batch that is run again replaces what it brought before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.offsets: dict[int, list[tuple[int, int]]] = {}

    def whole(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = read_rows(frame)

    def short(self, frame: DataFrame, batch: int) -> None:
        table: pa.Table = frame.select("partition", "offset").toArrow()
        self.offsets[batch] = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    @property
    def seen(self) -> list[tuple[int, int]]:
        return sorted(row for batch in self.offsets.values() for row in batch)


Start = Callable[..., "StreamingQuery"]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Start:
    def start(each: Any, options: dict[str, Any], **trigger: Any) -> StreamingQuery:
        given = {name: str(value) for name, value in ({"startingOffsets": "earliest"} | options).items()}
        stream = spark.readStream.format("tidelog").options(**given).load()
        writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**trigger).start() if trigger else writer.start()

    return start


def test_rows_are_those_of_a_batch_and_a_checkpoint_goes_on(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(log_dir(), folder)
    sink = Sink()
    options = {"path": folder, "subscribePattern": "v2-zstd-.*|transactions|two-partitions", "includeHeaders": "true"}
    options |= {"isolationLevel": "read_committed", "maxOffsetsPerTrigger": 700}
    start(sink.whole, options, availableNow=True).awaitTermination()
    topics = sorted({row.topic for batch in sink.batches.values() for row in batch})
    assert len(sink.batches) > 1 and len(topics) == 4
    found = sorted(row for batch in sink.batches.values() for row in batch)
    assert found == sorted(row for topic in topics for row in rows(topic, committed=True))
    count = len(sink.batches)
    start(sink.whole, options, availableNow=True).awaitTermination()
    assert len(sink.batches) == count


def test_a_start_adds_no_name_to_the_environment_that_all_streams_share(spark: SparkSession, start: Start) -> None:
    """It is a map that two streams must not add to at once: `register` has put the names there."""
    register(spark)
    session: Any = spark._jsparkSession
    shared = session.sessionState().dataSourceManager().lookupDataSource("tidelog").dataSourceCls().envVars()
    before = set(shared)
    start(Sink().short, {"path": log_dir(), "subscribe": "v2-zstd-ct"}, availableNow=True).awaitTermination()
    assert shared["SPARK_LOCAL_DIRS"], "this is not the map that a start changes"
    assert set(shared) == before
    assert not before & set(spark.sparkContext.environment) & {"SPARK_LOCAL_DIRS", "SPARK_BUFFER_SIZE"}


def test_a_stream_follows_brokers_and_tells_its_lag(start: Start) -> None:
    sink = Sink()
    # Records of long ago would go at the broker's first look.
    with tidelog.Broker(log_retention_ms=-1) as broker, tidelog.connect(broker.bootstrap_servers) as client:
        client.produce_many(TOPIC, [NewRecord(value=b"v", timestamp=NOON + at) for at in range(5)])
        query = start(
            sink.short,
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, "startingOffsets": "latest"},
            processingTime="100 milliseconds",
        )
        try:
            query.processAllAvailable()
            client.produce_many(TOPIC, [NewRecord(value=b"v", timestamp=NOON + at) for at in range(50)])
            query.processAllAvailable()
            progress = query.recentProgress
        finally:
            query.stop()
    assert sink.seen == [(0, offset) for offset in range(5, 55)]
    [source] = [entry.sources[0] for entry in progress if entry.numInputRows]
    assert json.loads(source.endOffset) == json.loads(source.latestOffset) == {TOPIC: {"0": 55}}


def test_once_reads_all_that_there_is(start: Start, tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path / "data"), 50)
    sink = Sink()
    options = {"path": tmp_path / "data", "subscribe": TOPIC, "maxOffsetsPerTrigger": 7}
    start(sink.short, options, once=True).awaitTermination()
    assert sink.offsets == {0: [(0, offset) for offset in range(50)]}


def test_a_batch_that_fails_is_run_again_with_the_same_rows(start: Start, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "data")
    fill(builder, 20)
    sink = Sink()
    failed = Sink()

    def fail(frame: DataFrame, batch: int) -> None:
        failed.short(frame, batch)
        raise RuntimeError("crashed")

    options = {"path": tmp_path / "data", "subscribe": TOPIC, "maxTimePerTrigger": "8s"}
    for _ in range(2):
        with pytest.raises(PySparkException, match="crashed"):
            start(fail, options, availableNow=True).awaitTermination()
        fill(builder, 10)
    start(sink.short, options, availableNow=True).awaitTermination()
    assert sink.offsets[0] == failed.offsets[0] == [(0, offset) for offset in range(8)]
    assert sink.seen == [(0, offset) for offset in range(40)]


def test_what_is_lost_ends_the_query_with_one_clear_error(start: Start, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "data", segment_bytes=300)
    fill(builder, 20)
    sink = Sink()
    options = {"path": tmp_path / "data", "subscribe": TOPIC}
    start(sink.short, options, availableNow=True).awaitTermination()
    fill(builder, 30)
    begin = retention(tmp_path, builder)
    with pytest.raises(PySparkException) as raised:
        start(sink.short, options, availableNow=True).awaitTermination()
    said = f"orders-0 offsets [20, {begin}), {begin - 20} in all: the log starts at {begin}"
    assert said in str(raised.value)
    start(sink.short, options | {"failOnDataLoss": "false"}, availableNow=True).awaitTermination()
    assert sink.seen == [(0, offset) for offset in (*range(20), *range(begin, 50))]


def test_what_is_refused_says_why(start: Start, tmp_path: Path) -> None:
    LogBuilder(tmp_path / "data")
    options = {"path": tmp_path / "data", "subscribe": TOPIC, "endTime": "2013-07-10"}
    with pytest.raises(PySparkException, match="option endTime: a stream has no end") as raised:
        start(Sink().short, options, availableNow=True).awaitTermination()
    assert "UnboundLocalError" not in str(raised.value), "Spark's own, for a reader that could not be made"
