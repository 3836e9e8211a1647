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


def test_a_pytest_that_a_test_starts_leaves_other_runs_alone(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It would remove the folders of all but the last three runs."""
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path):\n    print('its folder is', tmp_path)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_it.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, env=env)
    folder = Path(ran.stdout.partition("its folder is ")[2].splitlines()[0])
    assert folder.is_relative_to(tmp_path_factory.getbasetemp()), ran.stdout + ran.stderr
