"""One Spark session for all tests that need one: starting it takes longer than most of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import spark_classes
from tests.patience import PATIENCE_S
from tests.spark.golden import Row, log_dir

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    # A JVM that lives for seconds is faster when it compiles quickly rather than well.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # On a machine with much else to do a Python process may take longer than 15 s to begin.
    "spark.python.authenticate.socketTimeout": "120s",
    # A zone with summer time, far from UTC: a naive step anywhere would show.
    "spark.sql.session.timeZone": "America/New_York",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A session, with the processes that it starts, takes a tenth of what all other tests take: `make interop` has one anyway.
    # What it calls is tested without Spark in `make test`.
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.interop)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of a few partitions of Kafka 3.9.1, for jobs that write."""
    folder = tmp_path / "data"
    for name in ("two-partitions-0", "two-partitions-1", "transactions-0"):
        shutil.copytree(Path(log_dir()) / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark import SparkContext

    from tidelog.spark import session

    spark_classes.share()
    started = session("tests", master="local[2, 2]", config=CONFIG)
    yield started
    started.stop()
    # PySpark leaves the JVM, and the pipe that keeps it alive, to the interpreter's end; here an open file is an error.
    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=PATIENCE_S)


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    """Load topics of the golden folder (or of `path`) with options given as keywords."""

    def load(subscribe: str | None = None, **options: Any) -> DataFrame:
        given = {"path": log_dir()} | ({} if subscribe is None else {"subscribe": subscribe}) | options
        return spark.read.format("tidelog").options(**given).load()

    return load


def read_rows(frame: DataFrame) -> list[Row]:
    """Collect a DataFrame that has the headers into rows, in order of topic, partition and offset."""
    table: pa.Table = frame.toArrow()
    columns = [table[name].to_pylist() for name in ("topic", "partition", "offset")]
    timestamps = [None if us is None else us / 1000 for us in table["timestamp"].cast("int64").to_pylist()]
    headers = [None if h is None else tuple((e["key"], e["value"]) for e in h) for h in table["headers"].to_pylist()]
    rest = [table[name].to_pylist() for name in ("timestampType", "key", "value")]
    found = [Row(*row) for row in zip(*columns, timestamps, *rest, headers, strict=True)]
    return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))
