"""Every job, batch and stream that reads a folder says what the folder lacks. A new job is found missing here."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from tests.cli.conftest import run
from tests.cli.incomplete import FIRST_MS, GROUP, LOST, SILENT, TOPICS, commands, take_away, whole_folder
from tests.spark.stream_query import Query
from tidelog.clock import ManualClock
from tidelog.errors import IncompleteLogWarning, OffsetOutOfRangeError
from tidelog.spark.bootstrap import take_cut
from tidelog.spark.options import parse_options
from tidelog.spark.tasks import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: dict[str, tuple[str, ...]] = {
    "job verify": (),
    "job build": ("--out", "OUT"),
    "job rebuild": ("--out", "OUT"),
    "job migrate": ("OUT",),
    "job lookup": ("QUESTIONS",),
    "job latency": (),
    "job lag": (),
    "job retention": (),
    "job bootstrap": ("--subscribe", ",".join(TOPICS), "--cut", "OUT"),
}
COPYING: dict[str, tuple[str, ...]] = {
    "job replay": ("TOPIC", "--target", "BROKER", "--map", "OUT"),
    "job mirror": ("--target", "BROKER", "--map", "OUT"),
}
"""Jobs that copy a topic."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = whole_folder(tmp_path_factory.mktemp("incomplete") / "data")
    take_away(folder)
    return folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(tmp_path_factory.mktemp("target")) as broker:
        yield broker


def test_every_job_is_here() -> None:
    assert {name for name in commands() if name.startswith("job ")} == {
        name for name in {*JOBS, *COPYING, *SILENT} if name.startswith("job ")
    }


@pytest.mark.parametrize("name", list(JOBS))
def test_jobs(name: str, spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.csv"
    lines = [f"{topic},{number},{FIRST_MS * 2}" for topic in TOPICS for number in range(1 if topic == "part" else 2)]
    questions.write_text("\n".join(["topic,partition,timestamp", *lines]))
    places = {"OUT": tmp_path / "out", "QUESTIONS": questions}
    ran = run(*name.split(), folder, *(places.get(option, option) for option in JOBS[name]), "--json")
    assert ran.exit_code == 3, ran.stderr
    told = {line["topic"] for line in ran.json_lines if line.get("type") == "missing"}
    # Questions name the partitions that they are about.
    lost = [one for one in LOST if not (name == "job lookup" and one.startswith("part"))]
    assert told == {one.rpartition("-")[0] for one in lost}
    assert all(sum(one in note for note in ran.notes) == 1 for one in lost), ran.stderr


@pytest.mark.parametrize(("name", "topics"), [("job replay", ["part"]), ("job replay", ["end"]), ("job mirror", [*TOPICS])])
def test_jobs_that_copy(
    name: str, topics: list[str], spark: SparkSession, folder: Path, target: tidelog.Broker, tmp_path: Path
) -> None:
    places = {"OUT": tmp_path / "out", "TOPIC": topics[0], "BROKER": target.bootstrap_servers}
    ran = run(*name.split(), folder, *(places.get(option, option) for option in COPYING[name]), "--json")
    assert ran.exit_code == 3, ran.stderr
    assert {line["topic"] for line in ran.json_lines if line.get("type") == "missing"} == set(topics)
    for topic in topics:
        (lost,) = (one for one in LOST if one.startswith(f"{topic}-"))
        assert sum(lost in note for note in ran.notes) == 1


def test_a_mirror_and_a_failover_of_groups_whose_commits_are_missing(
    spark: SparkSession, folder: Path, target: tidelog.Broker, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    shutil.rmtree(own / "__consumer_offsets-0")
    lost = "__consumer_offsets-0: offsets [0, "
    brokers = ("--target", target.bootstrap_servers)
    ran = run("job", "mirror", own, *brokers, "--topic", "end", "--prefix", "a-", "--group", GROUP, "--map", tmp_path / "map")
    assert ran.exit_code == 3
    assert sum(lost in note for note in ran.notes) == 1
    ran = run("job", "failover", target.bootstrap_servers, "--group", GROUP, "--map", tmp_path / "map", "--source", own)
    assert lost in ran.notes[0]
    assert "no committed offsets of group 'readers' were found" in ran.error


@pytest.mark.parametrize(("topic", "lost"), list(zip(TOPICS, LOST, strict=True)))
def test_batches(topic: str, lost: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"path": str(folder), "subscribe": topic}
    with pytest.raises(OffsetOutOfRangeError, match=re.escape(lost)):
        plan_tasks(parse_options(options, ManualClock(0)), 2)
    assert plan_tasks(parse_options({**options, "failOnDataLoss": "false"}, ManualClock(0)), 2)
    assert lost in caplog.text


@pytest.mark.parametrize(("topic", "lost"), list(zip(TOPICS, LOST, strict=True)))
def test_streams(topic: str, lost: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"path": folder, "subscribe": topic, "startingOffsets": "earliest"}
    with pytest.raises(OffsetOutOfRangeError, match=re.escape(lost)):
        Query(options).run_all()
    assert Query({**options, "failOnDataLoss": "false"}).run_all()
    assert lost in caplog.text


def test_a_cut_warns(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.warns(IncompleteLogWarning) as caught:
        take_cut(folder, TOPICS)
    assert all(any(lost in str(one.message) for one in caught) for lost in LOST)
    assert all(one.filename == __file__ for one in caught)
