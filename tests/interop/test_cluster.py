"""docs/cluster.md, tried: two executors of their own, whose Python has Tidelog as a wheel brings it, and no checkout.

Spark's `local-cluster` starts a master and workers as processes, as a standalone cluster does, and gives each application its
executors; programs come through spark-submit.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

import tidelog
from tests.broker.eos.processes import Served
from tests.interop.spark_program import StarvedError, is_starved
from tests.kafka.clients import consume, create_topics
from tests.reader.golden import GOLDEN
from tidelog.cli.job import SUBMIT_SCRIPT
from tidelog.spark import ensure_java

LOGS = GOLDEN / "kafka-3.9.1" / "log"
TOPIC = "v2-none-ct"
TIMEOUT_S = 800
ATTEMPTS = 3
"""Spark gives a Python ten seconds to start, which cannot be set, and a busy machine may take longer: the program runs again."""
PROGRAM = Path(__file__).with_name("cluster_program.py")
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of the executors: the package's files, and what it depends on."""
    folder = tmp_path_factory.mktemp("python") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("tidelog", "pyspark_tidelog"):
        source = Path(tidelog.__file__).parents[1] / name
        shutil.copytree(source, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    for distribution in (
        "click",
        "cramjam",
        "crc32c",
        "Cython",
        "prometheus-client",
        "pyarrow",
        "rich",
        "markdown-it-py",
        "mdurl",
    ):
        _link(distribution, packages)
    _link("Pygments", packages)
    return folder / "bin" / "python"


def _link(distribution: str, packages: Path) -> None:
    files = importlib.metadata.files(distribution) or []
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        (packages / top).symlink_to(Path(str(importlib.metadata.distribution(distribution).locate_file(top))))


def submit(python: Path, folder: Path, program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local-cluster[2,1,512]"]
    for name, value in CONFIG.items():
        command += ["--conf", f"{name}={value}"]
    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)  # local-cluster's workers write beside them
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    given |= {"JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    given |= {"SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(folder / "local")}
    ran = subprocess.run(
        [*command, program, *map(str, arguments)], cwd=folder, env=given, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if ran.returncode and is_starved(ran.stdout + ran.stderr):
        raise StarvedError(said(ran))
    return ran


def said(ran: subprocess.CompletedProcess[str]) -> str:
    """Return what was said, without Java's stacks. Both outputs of the program are the standard output of spark-submit."""
    return "\n".join(line for line in (ran.stdout + ran.stderr).splitlines() if not line.startswith("\tat"))[:8000]


def not_starved(attempt: Callable[[int], Path]) -> Path:
    """Return what the first attempt returns that Spark gives enough time."""
    for number in range(ATTEMPTS - 1):
        with contextlib.suppress(StarvedError):
            return attempt(number)
    return attempt(ATTEMPTS - 1)


@pytest.mark.thorough("executors with the wheel: the test below; reads, streams, the sink: tests/spark, test_sink_brokers")
def test_reads_and_streams(python: Path, tmp_path: Path) -> None:
    expected = tidelog.scan(LOGS, TOPIC).read_all().to_pylist()
    with Served(tmp_path / "tidelog", {"offsets.topic.num.partitions": "1"}) as broker:

        def attempt(number: int) -> Path:
            """Copy into a topic of its own, and return where the program says what it saw."""
            folder = tmp_path / f"copied-{number}"
            folder.mkdir()
            create_topics(broker.bootstrap, {folder.name: {}})
            ran = submit(
                *(python, folder, PROGRAM, LOGS, TOPIC, broker.bootstrap, folder.name),
                *(folder / "checkpoint", folder / "spool", folder / "seen.json"),
            )
            assert ran.returncode == 0, said(ran)
            return folder

        done = not_starved(attempt)
        copied = consume(broker.bootstrap, done.name, isolation="read_committed")
    seen = json.loads((done / "seen.json").read_text())
    assert seen["master"].startswith("local-cluster")
    assert seen["workers"] == [[str(python), str(next(python.parents[1].glob("lib/*/site-packages/tidelog/__init__.py")))]]
    assert seen["rows"] == sorted(
        [row["partition"], row["offset"], None if row["value"] is None else row["value"].hex()] for row in expected
    )
    assert [(row.key, row.value) for row in copied] == [(row["key"], row["value"]) for row in expected]
    assert seen["batches"] == 3


def test_a_job_and_its_exit_code(python: Path, tmp_path: Path) -> None:
    shutil.copytree(LOGS / f"{TOPIC}-0", tmp_path / "data" / f"{TOPIC}-0")
    index = min((tmp_path / "data" / f"{TOPIC}-0").glob("*.timeindex"))
    index.write_bytes(index.read_bytes()[12:])
    ran = submit(python, tmp_path, SUBMIT_SCRIPT, "verify", tmp_path / "data", "--json")
    assert ran.returncode == 1, said(ran)
    fault, topic = map(json.loads, ran.stdout.splitlines())
    assert (fault["type"], topic["topic"], topic["faults"]) == ("fault", TOPIC, 1)
