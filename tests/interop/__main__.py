"""`make interop` and `make interop-all`: runs the tests against real software. A test that got no answer is rerun once.

    python -m tests.interop [--all] [pytest's arguments]

Without `--all` the tests marked `thorough` are left out. Such a test repeats another test for another release, mode or seed, or
checks the same as a cheaper test, and it has found nothing in a long time. Its mark says which.

| a test ends with | |
|---|---|
| a wrong answer (a failed assertion, no error where one was expected) | it has failed |
| no answer (a timeout, a dead process or query) | it is reported and rerun once, alone, in at most `AT_MOST` files |

Ten workers share the tests, file by file (see `tests/conftest.py`): a test mostly waits for sessions to expire, brokers to
start, or clients to retry. Eight workers left a quarter of two cores idle. `-n 0` runs the tests one by one. The first run on a
machine also creates the class archive for Spark's JVMs (see `tests/spark_classes.py`).

A test that passes in the rerun has still failed once: find out why. This has uncovered many of our bugs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import spark_classes
from tests.interop import worker_crashes

AT_MOST = 3
WORKERS = "10"
FOLDERS = ("tests/interop", "tests/spark", "tests/tutorials")
ALL = "--all"
GATE = "interop and not thorough"
EVERYTHING = "interop"
SETTINGS = ("-q", "-o", "faulthandler_timeout=900")


class Failures:
    """Collects the workers' reports: the failed tests, and whether they got an answer."""

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.are_answers = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed test. Skipped tests do not count."""
        if not report.failed:
            return
        self.are_answers |= getattr(report, "is_answer", False)
        if report.nodeid not in self.tests:
            self.tests.append(report.nodeid)


class SparkClasses:
    """Makes Spark's JVMs share their classes. A plugin, because pytest imports Tidelog in its own way."""

    def __init__(self) -> None:
        self._making = ExitStack()

    def pytest_configure(self) -> None:
        """Start before the workers do."""
        spark_classes.share()
        self._making.enter_context(spark_classes.being_made())

    def pytest_unconfigure(self) -> None:
        """Wait for an archive that is being created."""
        self._making.close()


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit status."""
    failures = Failures()
    which = EVERYTHING if ALL in arguments else GATE
    asked = [argument for argument in arguments if argument != ALL]
    settings = (*SETTINGS, "-m", which, "-n", WORKERS, "-p", "tests.interop.answers")
    with TemporaryDirectory() as stacks:
        os.environ[worker_crashes.FOLDER] = stacks
        status = pytest.main([*settings, *(asked or FOLDERS)], plugins=[failures, SparkClasses()])
        del os.environ[worker_crashes.FOLDER]
        for worker, stack in worker_crashes.crashes(Path(stacks)).items():
            print(f"\n== worker {worker} died: {stack}", flush=True)
    # A failing shared fixture fails all tests of its file.
    files = [list(tests) for _, tests in groupby(sorted(failures.tests), key=lambda test: test.split("::")[0])]
    if status != pytest.ExitCode.TESTS_FAILED or failures.are_answers or not 0 < len(files) <= AT_MOST:
        return status
    for tests in files:
        print("\n== no answer, and run once more, alone:", *tests, sep="\n   ", flush=True)
        again = subprocess.run([sys.executable, "-m", "pytest", *SETTINGS, *tests], check=False)
        if again.returncode != pytest.ExitCode.OK:
            return status
    print("\n== passed when run alone, and to be explained:", *failures.tests, sep="\n   ", flush=True)
    return pytest.ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
