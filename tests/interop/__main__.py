"""`make interop`: all tests against real software; what did not answer is asked once more.

    python -m tests.interop [pytest's arguments]

| a test ends with | |
|---|---|
| a wrong answer (a failed assertion, no error where one was expected) | it has failed, once and for all |
| no answer (a timeout, a process or a query that died) | it is reported, and run once more, alone, in at most `AT_MOST` files |

Six workers share the tests, file by file (see `tests/conftest.py`): a test mostly waits, for a session that ends, a broker that
starts, a client that asks again. Four left a third of two cores' time unused. `-n 0` runs them one after another. Beside them
the first run on a machine keeps the classes of Spark for the starts to come (see `tests/spark_classes.py`).

There are a thousand tests, of JVMs, Sparks and clients of nine releases on whatever cores are left, and these have flaws that
show once in some hundred runs: a producer of 2.4.1 that waits for an answer and does not read, a rebalance of librdkafka that
forgets an offset, a Spark that gives a Python ten seconds to start. Each of them is to be explained all the same: many a flaw of
ours was found like that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby

import pytest

from tests import spark_classes

AT_MOST = 3
WORKERS = "6"
FOLDERS = ("tests/interop", "tests/spark")
SETTINGS = ("-q", "-m", "interop", "-o", "faulthandler_timeout=900")


class Failures:
    """Listens to the reports of all workers: what failed, and whether it answered."""

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.are_answers = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failed test. Skips are none."""
        if not report.failed:
            return
        self.are_answers |= getattr(report, "is_answer", False)
        if report.nodeid not in self.tests:
            self.tests.append(report.nodeid)


class SparkClasses:
    """Has the JVMs of Spark share their classes: pytest is there by then, and imports Tidelog in its own way."""

    def __init__(self) -> None:
        self._making = ExitStack()

    def pytest_configure(self) -> None:
        """Begin, before there are workers."""
        spark_classes.share()
        self._making.enter_context(spark_classes.being_made())

    def pytest_unconfigure(self) -> None:
        """Let what is being made come to its end."""
        self._making.close()


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit status."""
    failures = Failures()
    settings = (*SETTINGS, "-n", WORKERS, "-p", "tests.interop.answers")
    status = pytest.main([*settings, *(arguments or FOLDERS)], plugins=[failures, SparkClasses()])
    # What the tests of a file share fails for all of them.
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
