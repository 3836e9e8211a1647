"""Damage and missing segments in a Spark session: an error that says where, or all that is there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.cli.conftest import run
from tests.interop.gate import first_of
from tests.spark.golden import log_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "v2-none-ct"
SECOND = "00000000000000000160"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for topic in (TOPIC, "v2-lz4-ct"):
        shutil.copytree(Path(log_dir()) / f"{topic}-0", tmp_path / "log" / f"{topic}-0")
    return tmp_path / "log"


def offsets(frame: Any) -> list[int]:
    return sorted(frame.select("offset").toArrow()["offset"].to_pylist())


def test_skip_damaged_in_a_batch(spark: SparkSession, folder: Path) -> None:
    path = folder / f"{TOPIC}-0" / f"{SECOND}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    reader = spark.read.format("tidelog").option("path", str(folder)).option("subscribe", TOPIC)
    with pytest.raises(PySparkException, match=SECOND):
        offsets(reader.load())
    given = offsets(reader.option("skipDamaged", "true").load())
    whole = offsets(spark.read.format("tidelog").option("path", log_dir()).option("subscribe", TOPIC).load())
    lost = sorted(set(whole) - set(given))
    assert lost and lost[0] == 160 and lost == list(range(160, lost[-1] + 1))
    assert given == [offset for offset in whole if offset not in lost]


@pytest.mark.parametrize("loss_is_fine", first_of(False, True, why="what a stream leaves out: test_stream_damage"))
def test_a_stream_of_a_folder_that_lacks_a_segment(loss_is_fine: bool, spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    for path in (folder / f"{TOPIC}-0").glob(f"{SECOND}.*"):
        path.unlink()
    options = {"path": str(folder), "subscribe": TOPIC, "startingOffsets": "earliest"}
    if loss_is_fine:
        options["failOnDataLoss"] = "false"
    seen: list[int] = []
    stream = spark.readStream.format("tidelog").options(**options).load()
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: seen.extend(offsets(frame)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if loss_is_fine:
        query.awaitTermination()
        assert sorted(seen) == [*range(160), *range(325, 900)]
    else:
        with pytest.raises(PySparkException, match=r"\[160, 325\)"):
            query.awaitTermination()
        assert not set(seen) & set(range(325, 900))


def test_jobs_say_only_what_could_change_their_answer(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """That each says what is missing is in test_incomplete.py."""
    for path in (folder / f"{TOPIC}-0").glob(f"{SECOND}.*"):
        path.unlink()
    (tmp_path / "asked.csv").write_text(f"topic,partition,timestamp\n{TOPIC},0,1600604770000\n{TOPIC},0,4000000000000\n")
    (tmp_path / "early.csv").write_text(f"topic,partition,timestamp\n{TOPIC},0,0\n")
    ran = run("job", "lookup", folder, tmp_path / "asked.csv", "--json")
    lines = [line for line in ran.json_lines if line.get("type") == "missing"]
    assert [(line["topic"], line["first_offset"], line["end_offset"]) for line in lines] == [(TOPIC, 160, 325)]
    assert run("job", "lookup", folder, tmp_path / "early.csv").exit_code == 0
    assert run("job", "latency", folder, "v2-lz4-ct").exit_code == 0
