"""The command line: `cat --grep` over JSON records, and how soon commands answer. Processor time of whole processes.

| measured | beside |
|---|---|
| `cat --grep`, few matches: MB/s of keys and values, without the start | `grep -c` on the values; `cat --format arrow` |
| `tidelog --help`; `ls`, `cat -n 1` on a folder of one small topic | `python -c pass` |

    python -m bench.cli.command_bench [--records 1500000] [--rounds 3] [--json]

Its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
from typing import Any

import tidelog
from bench.children.scratch import scratch

OUT = scratch("command")
TIDELOG = [sys.executable, "-m", "tidelog"]
BATCH = 1000
TEXT = "lorem ipsum dolor sit amet " * 8

EXPRESSIONS = ("nothing-here", '"order":7654321,', "dolor.*elit$")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="cat --grep, and the time until commands answer")
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--min-mb", type=float, default=300, help="end with 1 below this rate of cat --grep")
    parser.add_argument("--max-help-s", type=float, default=0.15)
    parser.add_argument("--max-answer-s", type=float, default=0.3)
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    try:
        result = run(options.records, options.rounds)
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    print(json.dumps(result) if options.json else table(result))
    slow = [one for one in result["grep"] if one["mb_per_s"] < options.min_mb]
    late = [name for name, seconds in result["starts"].items() if seconds > options.max_answer_s]
    return 1 if slow or late or result["starts"]["tidelog --help"] > options.max_help_s else 0


def run(records: int, rounds: int) -> dict[str, Any]:
    """Measure everything in turn; return the medians."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    data, values = OUT / "data", OUT / "values.txt"
    with tidelog.Broker(data) as broker:
        broker.create_topic("small")
        broker.produce("small", b"one")
        broker.create_topic("orders", retention_ms=-1)
        with values.open("w") as out:
            for first in range(0, records, BATCH):
                batch = [json.dumps({"order": n, "carrier": "UA", "text": TEXT}) for n in range(first, first + BATCH)]
                broker.produce("orders", batch, key=b"customer-%06d" % first)
                out.writelines(f"{value}\n" for value in batch)
    read_bytes = sum(
        batch.column(name).nbytes
        for batch in tidelog.scan(data, "orders", columns=["key", "value"])
        for name in batch.schema.names
    )
    cat = [*TIDELOG, "cat", str(data)]
    starts = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "tidelog --help": [*TIDELOG, "--help"],
        "tidelog ls": [*TIDELOG, "ls", str(data), "small"],
        "tidelog cat -n 1": [*cat, "small", "-n", "1"],
    }
    seconds = {name: statistics.median(_seconds(command) for _ in range(rounds)) for name, command in starts.items()}

    def without_start(*options: str) -> float:
        """Return the time of `cat` on all records, less that of the same command on hardly a record."""
        whole, start = (_seconds([*cat, topic, *options]) for topic in ("orders", "small"))
        return whole - start

    scan = statistics.median(without_start("--format", "arrow") for _ in range(rounds))
    grep = []
    for text in EXPRESSIONS:
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(without_start("--grep", text))
            theirs.append(_seconds(["grep", "-cE", text, str(values)]))
        own, peer = statistics.median(ours), statistics.median(theirs)
        rates = {"mb_per_s": read_bytes / 1e6 / own, "grep_mb_per_s": values.stat().st_size / 1e6 / max(peer, 0.01)}
        grep.append({"expression": text, **rates, "ratio_to_scan": own / max(scan, 0.01)})
    return {"megabytes": read_bytes / 1e6, "grep": grep, "starts": seconds}


def table(result: dict[str, Any]) -> str:
    """Return the result for people."""
    lines = [
        f"{result['megabytes']:.0f} MB of keys and values",
        "cat --grep               MB/s a core   grep -c   time beside arrow",
    ]
    lines += (
        f"{one['expression']:25}{one['mb_per_s']:11.0f}{one['grep_mb_per_s']:10.0f}{one['ratio_to_scan']:15.2f}x"
        for one in result["grep"]
    )
    return "\n".join([*lines, *(f"{name:25}{seconds:8.2f} s" for name, seconds in result["starts"].items())])


def _seconds(command: list[str]) -> float:
    """Return the processor time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Installed modules are compiled once, not at each start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, env=environment)
    notes = ran.stderr.splitlines()
    assert all(note.startswith(b"note: no record matches") for note in notes), ran.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
