"""Processes end with the test process that started them, however that ends: see `tests/orphans.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

STARTS = """
import os, signal, subprocess, sys
from tests import orphans
stays, ends = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"])
orphans.watch(stays)
orphans.watch(ends)
ends.kill()
ends.wait()
orphans.ended(ends)
print("started", flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)", "os._exit(0)"])
def test_nothing_outlives(end: str) -> None:
    """The pipe of its output is at its end when none that has inherited it is alive."""
    command = [sys.executable, "-c", STARTS.format(end=end)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], timeout=PATIENCE_S)
    assert ran.stdout == "started\n"
