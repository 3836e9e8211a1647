"""Measures how fast the broker's background tasks complete, in this checkout and in an earlier one, in turn: a row for each task.

    python -m bench.broker.background_bench [--before CHECKOUT] [--runs 3] [--rows PART …] [--scale 1.0] [--json]

`CHECKOUT` is a working tree with its own `.venv` (`make install`); without it no ratios are shown. A row is the time from when
the task may begin until the folder shows that it is done, in a separate process with idle clients. A ratio is the earlier
checkout's time divided by this checkout's; a row with a ratio below `--min-ratio` misses its target. `--scale 0.2` is a trial.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from bench.children.background_child import ROWS
from bench.children.scratch import scratch

OUT = scratch("background")
CHILD = Path(__file__).parents[1] / "children" / "background_child.py"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="how fast background works get done, beside an earlier checkout")
    parser.add_argument("--before", type=Path, help="a checkout with a .venv to compare with")
    parser.add_argument("--runs", type=int, default=3, help="the median counts")
    parser.add_argument("--rows", nargs="+", default=[], metavar="PART", help="rows whose names contain one of these")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--min-ratio", type=float, default=0.9, help="end with 1 below this ratio")
    parser.add_argument("--json", action="store_true", help="print one JSON line a row")
    options = parser.parse_args(arguments)
    pythons = {"now": sys.executable}
    if options.before is not None:
        pythons["before"] = str(options.before.absolute() / ".venv/bin/python")
    is_missed = False
    if not options.json:
        print(f"{'seconds (processor seconds)':42} {'before':>16} {'now':>16}  ratio", flush=True)
    for name in ROWS:
        if options.rows and not any(part in name for part in options.rows):
            continue
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in pythons}
        for _ in range(options.runs):
            for side, python in pythons.items():
                runs[side].append(_run(python, name, options.scale))
        found = {
            side: {key: statistics.median(one[key] for one in measured) for key in measured[0]} for side, measured in runs.items()
        }
        ratio = found["before"]["seconds"] / found["now"]["seconds"] if found.get("before") else None
        is_missed |= ratio is not None and ratio < options.min_ratio
        if options.json:
            print(json.dumps({"row": name, "ratio": ratio, **runs}), flush=True)
            continue
        cells = [
            f"{one['seconds']:.2f} ({one['processor_s']:.2f})" if one else "–" for one in (found.get("before"), found["now"])
        ]
        told = "" if ratio is None else f"{ratio:.2f}{' missed' if ratio < options.min_ratio else ''}"
        print(f"{name:42} {cells[0]:>16} {cells[1]:>16}  {told}", flush=True)
    return 1 if is_missed else 0


def _run(python: str, name: str, scale: float) -> dict[str, float]:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        done = subprocess.run([python, str(CHILD), name, str(OUT / "data"), str(scale)], capture_output=True, text=True)
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(f"{name} under {python}: {done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    sys.exit(main())
