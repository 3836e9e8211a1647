"""How the tests of the command line run it: in this process for most, as a process of its own where that matters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidelog.cli.app import cli
from tidelog.clock import Clock

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what runs in the background; a process started from here would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(name, None)  # What tests compare is without colours, also where a build server asks for them.

KAFKA_3 = GOLDEN / "kafka-3.9.1" / "log"
KAFKA_2 = GOLDEN / "kafka-2.4.1" / "log"


@dataclass
class Ran:
    """One run of the command: its exit code and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str
    stdout_bytes: bytes

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.split("\n") if line]

    @property
    def notes(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("note: ")]

    @property
    def error(self) -> str:
        """The one line that says what went wrong; there must be exactly one."""
        (line,) = [line for line in self.stderr.splitlines() if line.startswith("tidelog: ")]
        return line


def run(*args: object, clock: Clock | None = None, program: click.Command = cli) -> Ran:
    """Run `tidelog ARGS`, or another program, in this process. A traceback is a failure of the test, whatever it tests."""
    result = CliRunner().invoke(program, [str(arg) for arg in args], obj=clock)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)


def run_ok(*args: object, clock: Clock | None = None, program: click.Command = cli) -> Ran:
    """Run `tidelog ARGS`, or another program, which must end well."""
    ran = run(*args, clock=clock, program=program)
    assert ran.exit_code == 0, ran.stderr
    return ran


def start(*args: object, module: str = "tidelog", **options: Any) -> subprocess.Popen[bytes]:
    """Start `tidelog ARGS`, or another module's program, as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **options.pop("env", {})}
    command = [sys.executable, "-m", module, *(str(arg) for arg in args)]
    return subprocess.Popen(command, env=environment, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})


def run_process(*args: object, **options: Any) -> Ran:
    """Run `tidelog ARGS` as a process of its own, to its end."""
    with start(*args, **options) as process:
        stdout, stderr = process.communicate(timeout=300)
    assert b"Traceback" not in (stderr or b"")
    return Ran(process.returncode, (stdout or b"").decode(), (stderr or b"").decode(), stdout or b"")


@pytest.fixture(scope="session")
def expected() -> Callable[[str, str], list[dict[str, Any]]]:
    """What the brokers answered: `expected("kafka-3.9.1", topic)` is a list of partitions."""
    answers = {
        name: json.loads((GOLDEN / name / "expected.json").read_text())["topics"] for name in ("kafka-3.9.1", "kafka-2.4.1")
    }
    return lambda version, topic: answers[version][topic]
