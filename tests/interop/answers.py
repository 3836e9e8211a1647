"""A plugin for `python -m tests.interop`: marks each failed report with whether the test got a wrong answer or none.

It runs in each worker, and the mark is sent with the report. A worker that dies counts as no answer.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.interop.worker_crashes import keep_stack

WRONG_ANSWERS = (AssertionError, pytest.fail.Exception)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark a report if the test failed by a wrong answer."""
    report = yield
    report.is_answer = call.excinfo is not None and call.excinfo.errisinstance(WRONG_ANSWERS)
    return report


def pytest_sessionstart() -> None:
    """Keep what a fatal signal would write. pytest has enabled its own way before."""
    keep_stack()
