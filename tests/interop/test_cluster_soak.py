"""The short form of `tests.cluster_soak`: one fault of each kind, two brokers of ours and one of Kafka's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = 17
TURNS = 3


def test_what_is_promised_is_kept_whatever_fails(tmp_path: Path) -> None:
    arguments = ["--brokers", "mixed", "--faults", "0", "--seed", str(SEED), "--elections", str(TURNS)]
    command = [sys.executable, "-m", "tests.cluster_soak", *arguments, "--folder", str(tmp_path / "cluster")]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
