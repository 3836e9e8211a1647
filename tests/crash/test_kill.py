"""A writing process that is killed with SIGKILL loses nothing that it acknowledged. `make soak` does this hundreds of times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 300 if os.environ.get("TIDELOG_SOAK") else 10


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    # A process of its own: forking this one would copy its threads' locks.
    command = [sys.executable, "-m", "tests.crash.kill_loop", tmp_path / "data", "--kills", str(KILLS), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3500, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
