"""`write` and `writeStream` into a folder, in a real session: every row once, through replays and a folder that is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import read_rows
from tests.spark.golden import Row
from tidelog.formats.dir_lock import DirLock
from tidelog.storage.folder.folder_topics import read_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]
TIMEOUT_S = 180


def without_offsets(rows: list[Row]) -> list[Row]:
    return sorted((row._replace(offset=0) for row in rows), key=repr)


def test_what_was_read_can_be_written_as_it_is(load: Load, tmp_path: Path) -> None:
    frame = load("v2-none-ct,recompressed-lz4", includeHeaders="true")
    for _ in range(2):
        frame.write.format("tidelog").option("compression", "zstd").mode("append").save(str(tmp_path / "copy"))
    copied = load(path=tmp_path / "copy", subscribe="v2-none-ct,recompressed-lz4", includeHeaders="true")
    wanted = read_rows(frame)
    assert without_offsets(read_rows(copied)) == without_offsets([*wanted, *wanted])
    assert [topic.properties for topic in read_topics(tmp_path / "copy").values()] == [{"retention.ms": "-1"}] * 2


def test_a_large_write_goes_by_way_of_files(spark: SparkSession, load: Load, tmp_path: Path) -> None:
    frame = spark.range(0, 3000, 1, 2).selectExpr("cast(id as string) key", "repeat(cast(id % 10 as string), 2000) value")
    given = {"topic": "large", "partitions": 3, "spoolDir": str(tmp_path / "spool"), "topic.segment.bytes": "1000000"}
    frame.write.format("tidelog").options(**given).mode("append").save(str(tmp_path / "data"))
    assert list((tmp_path / "spool").iterdir()) == []
    found = load(path=tmp_path / "data", subscribe="large").selectExpr(
        "cast(key as string) key", "length(value) size", "partition"
    )
    rows = found.collect()
    assert sorted(int(row.key) for row in rows) == list(range(3000))
    assert {row["size"] for row in rows} == {2000}
    assert {row.partition for row in rows} == {0, 1, 2}


class Streamed:
    """A stream from a folder of Parquet files into a topic."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.rows = 0
        self.add(40)

    def add(self, rows: int) -> None:
        frame = self.spark.range(self.rows, self.rows + rows, 1, 2).selectExpr("concat('row ', id) value")
        frame.write.mode("append").parquet(str(self.folder / "in"))
        self.rows += rows

    def run(self, **given: Any) -> None:
        rows = self.spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        options = {"topic": "out", "checkpointLocation": str(self.folder / "checkpoint"), **given}
        query = rows.writeStream.format("tidelog").options(**options).trigger(availableNow=True).start(str(self.folder / "data"))
        if not query.awaitTermination(TIMEOUT_S):
            raise TimeoutError(f"the query runs for more than {TIMEOUT_S} s: {query.status}")

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies right after the target's commit."""
        commits = self.folder / "checkpoint" / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink()


def written(load: Load, folder: Path) -> Counter[str]:
    found = load(path=folder / "data", subscribe="out").selectExpr("cast(value as string) value").collect()
    return Counter(row.value for row in found)


def test_a_stream_writes_each_row_once_through_replays(spark: SparkSession, load: Load, tmp_path: Path) -> None:
    stream = Streamed(spark, tmp_path)
    stream.run()
    for _ in range(2):
        stream.forget_last_commit()
        stream.run()
    stream.add(10)
    stream.run()
    assert written(load, tmp_path) == Counter(f"row {n}" for n in range(50))


def test_a_folder_that_is_held_fails_the_query_and_loses_nothing(spark: SparkSession, load: Load, tmp_path: Path) -> None:
    stream = Streamed(spark, tmp_path)
    stream.run()
    stream.add(10)
    with (
        DirLock(tmp_path / "data"),
        pytest.raises(PySparkException, match="a running broker or another import is using this folder"),
    ):
        stream.run()
    stream.run()
    assert written(load, tmp_path) == Counter(f"row {n}" for n in range(50))


def test_an_older_checkpoint_is_refused(spark: SparkSession, load: Load, tmp_path: Path) -> None:
    stream = Streamed(spark, tmp_path)
    stream.run()
    for kind in ("commits", "offsets"):
        for path in (tmp_path / "checkpoint" / kind).iterdir():
            if path.name in ("1", ".1.crc") or (kind, path.name) in (("commits", "0"), ("commits", ".0.crc")):
                path.unlink()
    with pytest.raises(PySparkException, match="checkpoint is older than this query's data"):
        stream.run()
    assert written(load, tmp_path) == Counter(f"row {n}" for n in range(40))


@pytest.mark.parametrize(
    ("select", "options", "mode", "says"),
    [
        ("id", {"topic": "a"}, "append", "the required column value is missing"),
        ("'v' value", {}, "append", "the rows have no target topic"),
        ("'v' value", {"topic": "a", "topik": "b"}, "append", "unknown option topik"),
        ("'v' value", {"topic": "a"}, "overwrite", "a log can only be appended to"),
        ("'v' value, cast(5 as int) partition", {"topic": "a"}, "append", "topic 'a' does not have this partition"),
        ("cast(null as string) topic, 'v' value", {}, "append", "column topic is null in a row"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(
    spark: SparkSession, tmp_path: Path, select: str, options: dict[str, str], mode: str, says: str
) -> None:
    frame = spark.range(1).selectExpr(*(part.strip() for part in select.split(", ")))
    with pytest.raises(PySparkException, match=says) as caught:
        frame.write.format("tidelog").options(**options).mode(mode).save(str(tmp_path / "data"))
    assert "InvalidArgumentError: " in str(caught.value)
    assert not list(tmp_path.glob("data/*-0/*.log"))
