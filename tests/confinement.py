"""A plugin that keeps tests from failing because of other tests or of earlier runs.

A failed test's open resources live as long as its traceback. Python would collect them later, during another test, with a
ResourceWarning, which is an error there. So after a failure, they are collected between two tests and without warnings: the
failure itself has been reported.

When pytest ends, it removes the folders that earlier runs have left in the system's temporary folder. A whole run leaves so many
files that removing them may take minutes, longer than a test waits for a pytest that it has started. So a started pytest keeps
its folders in a folder of this run.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test; if it failed, collect its garbage."""
    before = item.session.testsfailed
    ran = yield
    if item.session.testsfailed > before:
        _collect()
    return ran


@pytest.fixture(scope="session", autouse=True)
def folders_of_started_pytests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have each pytest that a test starts keep its folders in a folder of this run."""
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("started"))


def _collect() -> None:
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
