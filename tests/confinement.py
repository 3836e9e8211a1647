"""A plugin: a test that fails fails alone.

What it leaves open lives as long as its traceback. Python finds it later, in the middle of another test, and says so by a
ResourceWarning, which is an error there. So after a failure what it has left is collected, between two tests and in silence:
the failure itself has been reported.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test; collect what is left if it failed."""
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
