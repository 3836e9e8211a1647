"""`python -m tests.mutation [WORD ...]`: break each rule of `mutants`, run its rows' tests, list the broken rules that passed.

With words: only the mutants of these rows, or whose path contains one. Each runs on its own copy of the sources in a temporary
folder, so that the checkout stays as it is. Exit code 1: some mutant survived.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant
from tests.mutation.rows import ROOT, tests_of

PACKAGE = ROOT / "src" / "tidelog"
TIMEOUT_S = 600


def edited_sources(mutant: Mutant, folder: Path) -> None:
    """Lay a copy of the package below `folder`: links to the files of the checkout, and one edited file."""
    for path in PACKAGE.rglob("*"):
        copy = folder / "tidelog" / path.relative_to(PACKAGE)
        if "__pycache__" in path.parts:
            continue
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(path)
    edited = folder / "tidelog" / mutant.path
    edited.unlink()
    edited.write_text(mutant.applied_to((PACKAGE / mutant.path).read_text()))


def survives(mutant: Mutant, row: str) -> str | None:
    """Run the tests of a row on the edited sources; return what is wrong: nothing failed, or there was nothing to run."""
    tests = tests_of(row)
    if not tests:
        return "names no test outside of interop"
    with tempfile.TemporaryDirectory() as folder:
        edited_sources(mutant, Path(folder))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((folder, str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not interop", "--no-header", *tests]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    if ran.returncode == 1:
        return None
    return "survived" if ran.returncode == 0 else f"could not be run: {ran.stdout[-500:]}{ran.stderr[-500:]}"


def main(words: list[str]) -> int:
    """Return the exit code."""
    jobs = [
        (mutant, row)
        for mutant in MUTANTS
        for row in mutant.rows.split()
        if not words or any(word in mutant.path or word == row for word in words)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(lambda job: survives(*job), jobs))
    bad = [(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True) if outcome is not None]
    for (mutant, row), outcome in bad:
        print(f"{row}: {mutant.breaks} ({mutant.path}): {outcome}")
    print(f"{len(jobs) - len(bad)} of {len(jobs)} broken rules were noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
