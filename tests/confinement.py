"""A plugin that keeps a failed test from failing others.

Its open resources live as long as its traceback. Python would collect them later, during another test, with a ResourceWarning,
which is an error there. So after a failure, they are collected between two tests and without warnings: the failure itself has
been reported.
"""

from __future__ import annotations

import gc
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
