"""`tidelog job` with Spark after it, in this process with the tests' session."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT, run, run_ok
from tests.kafka.java import free_port
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.spark.bootstrap import Cut
from tidelog.spark.jobs.job_session import job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```console\n\$ (.+?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_verify_tells_faults_like_index_verify(spark: SparkSession, data: Path) -> None:
    path = data / "two-partitions-1" / f"{0:020}.timeindex"
    path.write_bytes(path.read_bytes()[12:])
    ran = run("job", "verify", data)
    assert ran.exit_code == 1
    assert ran.lines[0] == run("index", "verify", data).lines[0]
    assert ran.lines[1].split() == ["topic", "partitions", "segments", "bytes", "aborted_transactions", "time_maps", "faults"]
    assert [line.split()[0] for line in ran.lines[2:]] == ["transactions", "two-partitions"]
    assert ran.stderr == ""
    fault, *topics = run("job", "verify", data, "--json").json_lines
    assert fault == run("index", "verify", data, "--json").json_lines[0]
    assert [(row["topic"], row["partitions"], row["faults"]) for row in topics] == [
        ("transactions", 1, 0),
        ("two-partitions", 2, 1),
    ]


def test_rebuild_and_build(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    kafkas = {path: path.read_bytes() for path in data.rglob("*index")}
    for path in kafkas:
        path.unlink()
    log = data / "two-partitions-0" / f"{0:020}.log"
    ran = run_ok("job", "build", data, "--interval", "512", "--no-time-map")
    assert {path: path.read_bytes() for path in data.rglob("*index")} == kafkas
    assert not list(data.rglob("*.timemap"))
    content = bytearray(log.read_bytes())
    content[5000] ^= 1
    log.write_bytes(content)
    ran = run("job", "rebuild", data, "two-partitions", "-p", "0", "--out", tmp_path / "out")
    assert ran.exit_code == 1
    assert "no index covers the rest of the log" in ran.error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["two-partitions-0"]
    fault, topic = run("job", "rebuild", data, "two-partitions", "-p", "0", "--out", tmp_path / "out", "--json").json_lines
    assert (fault["type"], topic["faults"], topic["right"]) == ("fault", 1, topic["files"])


def test_rows_as_files(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    run_ok("job", "verify", data, "--rows", tmp_path / "rows")
    run_ok("job", "verify", data, "--rows", tmp_path / "rows.csv")
    run_ok("job", "verify", data, "--rows", tmp_path / "rows.json")
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / "rows")).orderBy("topic", "partition").collect()]
    assert [(row["kind"], row["topic"], row["partition"]) for row in rows] == [
        ("partition", "transactions", 0),
        ("partition", "two-partitions", 0),
        ("partition", "two-partitions", 1),
    ]
    assert [json.loads(line) for line in (tmp_path / "rows.json").read_text().splitlines()] == rows
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
        ]


def test_errors_are_one_line(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    assert run("job", "verify", tmp_path / "nowhere").error == f"tidelog: no such folder ({tmp_path / 'nowhere'})"
    index = next(data.rglob("*.timeindex"))
    index.unlink()
    index.mkdir()
    ran = run("job", "rebuild", data)
    assert ran.exit_code == 1
    assert ran.error.endswith(f"({index})")
    assert "Java" not in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("lag", "{nobody}"),
        ("bootstrap", "{nobody}", "--subscribe", "topic", "--cut", "cut"),
        ("replay", "{data}", "two-partitions", "--target", "{nobody}", "--map", "map"),
        ("mirror", "{data}", "--target", "{nobody}", "--map", "map"),
        ("failover", "{nobody}", "--group", "group", "--map", "map"),
    ],
    ids=lambda command: command[0],
)
def test_nobody_waits_for_spark_to_hear_of_a_dead_address(
    command: tuple[str, ...], data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tidelog.spark.jobs.job_session.job_session", None)
    nobody = f"127.0.0.1:{free_port()}"
    ran = run("job", *(word.format(data=data, nobody=nobody) for word in command))
    assert ran.exit_code == 1
    assert ran.error == f"tidelog: cannot connect to a broker: Connection refused ({nobody})"


def test_a_kept_cut_needs_its_source_no_more(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []

    @contextlib.contextmanager
    def nothing(name: str, *_: object) -> Iterator[None]:
        started.append(name)
        raise TidelogError("Spark is not for this test")
        yield

    monkeypatch.setattr("tidelog.spark.jobs.job_session.job_session", nothing)
    source = f"127.0.0.1:{free_port()}"
    key = TopicPartition("two-partitions", 0)
    Cut(source, None, 1, {key: 0}, {key: 10}).save(tmp_path / "cut")
    asked = ("job", "bootstrap", source, "--subscribe", "two-partitions", "--cut", tmp_path / "cut")
    assert "Spark is not for this test" in run(*asked, "--history-source", data).error
    assert started == ["tidelog job bootstrap"]
    assert f"Connection refused ({source})" in run(*asked).error
    assert len(started) == 1


def test_a_bug_in_a_worker_is_one_line_too(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(number: int) -> int:
        return 1 // number

    with (
        pytest.raises(TidelogError, match=r"^Spark: a worker raised ZeroDivisionError: .*TIDELOG_TRACEBACK"),
        job_session("test") as same,
    ):
        assert same is spark
        same.sparkContext.parallelize([1, 0], 2).map(work).collect()
    with pytest.raises(TidelogError, match=r"^Spark: .*nowhere") as caught, job_session("test"):
        spark.read.parquet("/nowhere/at/all").collect()
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("TIDELOG_TRACEBACK", "1")
    with pytest.raises(Exception, match="Traceback") as whole, job_session("test"):
        spark.sparkContext.parallelize([0], 1).map(work).collect()
    assert not isinstance(whole.value, TidelogError)
    assert spark.range(1).count() == 1  # A session that was there stays.


# --- docs/jobs.md


@pytest.mark.parametrize(("line", "shown"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_examples_are_what_the_jobs_say(line: str, shown: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, *args = shlex.split(line)
    assert program == "tidelog"
    ran = run_ok(*args)
    assert ran.stderr + ran.stdout == shown
