"""`tidelog job` with Spark after it, as people run it: in processes of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from studies.work_dir import PREFIX
from tests.cli.conftest import run_process, start
from tests.kafka.java import wait_until
from tidelog.cli.job import SUBMIT_SCRIPT
from tidelog.spark import ensure_java

pytestmark = [pytest.mark.interop, pytest.mark.spark]

PATIENCE_S = 300  # beside others, on two cores
"""A process with a Spark of its own, beside those of other workers."""
QUICK = ("--master", "local[1]", "--conf", "spark.driver.memory=512m")


def test_a_spark_that_does_not_start_says_why(data: Path) -> None:
    ran = run_process("job", "verify", data, "--master", "nonsense")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == f"{ran.error}\n"
    assert "Master must" in ran.error


def test_as_a_process_nothing_but_the_answer(data: Path) -> None:
    """No line of Spark's on stderr; not even where it fails in a worker."""
    index = next(data.rglob("two-partitions-1/*.timeindex"))
    index.unlink()
    index.mkdir()
    ran = run_process("job", "rebuild", data, "two-partitions", *QUICK)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == f"{ran.error}\n"
    assert str(index) in ran.error


def test_interrupted(data: Path) -> None:
    """Ctrl-C while Spark starts, which it does for seconds."""
    with start("job", "verify", data, *QUICK, start_new_session=True) as process:
        # Before that it may be Python that starts, and reports it.
        wait_until(lambda: process.poll() is not None or "java" in programs(process.pid), "the JVM's start")
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, b"")
    assert stderr == b"tidelog: interrupted\n"
    # The JVM sees that its parent is gone, and goes too.
    wait_until(lambda: not programs(process.pid), "the JVM's end")


def programs(group: int) -> set[str]:
    """What runs in a group of processes, by name."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[2]) == group:
                found.add(name)
    return found


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_while_workers_work(tmp_path: Path, number: signal.Signals, exit_code: int) -> None:
    """Not even what the workers were writing is left."""
    cases = tmp_path / "cases"
    cases.mkdir()
    arguments = ("options", "--out", tmp_path / "report.html", *QUICK)
    with start(*arguments, module="studies", start_new_session=True, env={"TMPDIR": str(cases)}) as process:
        wait_until(lambda: process.poll() is not None or any(cases.glob(f"{PREFIX}*")), "a worker that writes", 180)
        os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    said = b"tidelog: interrupted\n" if number is signal.SIGINT else b""
    assert (process.returncode, stdout, stderr) == (exit_code, b"", said)
    assert list(cases.glob(f"{PREFIX}*")) == []


def test_spark_submit_runs_the_same_program(data: Path) -> None:
    import pyspark

    environment = {**os.environ, "JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    submit = Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    options = ["--master", "local[1]", "--driver-memory", "512m", "--conf", "spark.ui.enabled=false"]
    command = [str(submit), *options, str(SUBMIT_SCRIPT), "verify", str(data), "transactions"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    header, line = done.stdout.splitlines()
    assert header.split()[0] == "topic"
    assert line.split()[:3] == ["transactions", "1", str(len(list((data / "transactions-0").glob("*.log"))))]
