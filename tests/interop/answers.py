"""A plugin for `python -m tests.interop`: says of each failed report whether the test got an answer, a wrong one.

It runs in each worker; what it says goes to the run with the report. A worker that dies says nothing: no answer.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

WRONG_ANSWERS = (AssertionError, pytest.fail.Exception)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on a report whether the test failed by a wrong answer."""
    report = yield
    report.is_answer = call.excinfo is not None and call.excinfo.errisinstance(WRONG_ANSWERS)
    return report
