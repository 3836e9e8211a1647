"""`make soak` runs what TIDELOG_SOAK makes longer."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGER = re.compile(r"TIDELOG_SOAK|IS_SOAK|run_state_machine_as_test")


def test_make_soak_has_all_that_it_makes_longer() -> None:
    longer = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and LONGER.search(path.read_text(encoding="utf-8"))
    }
    assert len(longer) > 20, "the files were found"
    said = subprocess.run(["make", "-n", "soak"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    runs = [line for line in said.splitlines() if line.startswith("TIDELOG_SOAK=1 ")]
    for kind in ("not interop", "interop"):
        assert any(f'-m "{kind}"' in run or f"-m {kind} " in run for run in runs), kind
        (named,) = (set(run.split()) for run in runs if re.search(rf'-m "?{kind}"? ', run) and longer & set(run.split()))
        assert longer - named == set(), kind
