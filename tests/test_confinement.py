"""A test that fails fails alone: see `tests/confinement.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

TESTS = """
import gc
import socket

import pytest


def opened():
    left = socket.socket()
    ring = [left]
    ring.append(ring)
    assert left is None


@pytest.fixture(scope="module")
def broken():
    opened()


def test_that_fails():
    opened()


def test_beside_it():
    gc.collect()


def test_whose_fixture_fails(broken):
    pass
"""
OTHER_MODULE = """
import gc


def test_of_another_module():
    gc.collect()
"""


@pytest.mark.parametrize(("plugin", "counts"), [("tests.confinement", "1 failed, 2 passed, 1 error"), ("", "3 failed, 1 error")])
def test_others_pass(plugin: str, counts: str, tmp_path: Path) -> None:
    """Without the plugin the others do fail: it is needed."""
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text(OTHER_MODULE)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, *(("-p", plugin) if plugin else ())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert counts in ran.stdout, ran.stdout + ran.stderr
