"""Runs a broker bench: parses its arguments, warms up both brokers, runs each case on both in turn, and prints one line for each
case.

A file of a gigabyte is written and removed before each run: so that both brokers get recycled memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from tests.kafka.jars import why_not

from bench.broker import cases
from bench.broker.cases import Case, Measure
from bench.broker.clients import OUT
from bench.broker.peers import Peer
from bench.charts.figures import Figure, note, number

PRIME_BYTES = 1 << 30
KAFKA, TIDELOG = "kafka", "tidelog"


Report = Callable[..., bool]


def arguments_of(description: str) -> argparse.ArgumentParser:
    """Return a parser with the common arguments."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="cases whose names contain one of these")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds of mixed traffic first: a JVM gets faster")
    parser.add_argument("--tidelog", action="store_true", help="Tidelog alone: no ratios")
    parser.add_argument("--json", action="store_true", help="print one JSON line a case instead of the table")
    return parser


def compare(
    catalogue: Sequence[Case],
    options: argparse.Namespace,
    *,
    table: str | None = None,
    folder: str = "{name}",
    properties: Mapping[str, str] | None = None,
    last: Callable[[list[str]], bool] = lambda names: False,
    told: Report | None = None,
) -> int:
    """Run the selected cases, and call `last` when the brokers have ended. Return the exit status: 1 if a target is missed.

    `table` is the rows' file in bench/figures, if there is one. Each broker's data is in `folder`, by its name; `properties`
    apply to both. `last` returns whether it missed a target. `told` prints a case instead of `report`.
    """
    reason = why_not()
    if reason and not options.tidelog:
        print(reason, file=sys.stderr)
        return 0
    names = [TIDELOG] if options.tidelog else [KAFKA, TIDELOG]
    chosen = [case for case in catalogue if not options.only or any(part in case.name for part in options.only)]
    is_missed = False
    peers = {name: Peer(name, OUT / folder.format(name=name), properties) for name in names}
    try:
        for peer in peers.values():
            peer.__enter__()
            if options.warm_up:
                cases.mixed_traffic(peer, options.warm_up)
        if not options.json and told is None:
            print(f"{'':45} {'Kafka':>10} {'Tidelog':>10}  ratio  target   CPU K → T          p50/p99 µs K → T", flush=True)
        for case in chosen:
            try:
                turns = measured(case, peers, options.runs)
                is_missed |= (told or report)(case, turns, as_json=options.json)
                if table is not None:
                    note_row(table, case, turns)
            except (RuntimeError, OSError) as error:
                is_missed = True
                print(f"{case.name:45} failed: {error}", flush=True)
    finally:
        for peer in peers.values():
            peer.__exit__()
    is_missed |= last(names)
    shutil.rmtree(OUT, ignore_errors=True)
    return 1 if is_missed else 0


def measured(case: Case, peers: dict[str, Peer], runs: int) -> dict[str, list[Measure]]:
    """Run a case on each broker in turn, `runs` times."""
    turns: dict[str, list[Measure]] = {name: [] for name in peers}
    with ExitStack() as stack:
        ready = {name: stack.enter_context(case.prepare(peer)) for name, peer in peers.items()}
        for _ in range(runs):
            for name, run in ready.items():
                prime()
                turns[name].append(run())
    return turns


def prime() -> None:
    """Make the machine allocate memory for the page cache before a timed run."""
    path = OUT / "prime"
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(PRIME_BYTES // len(block)):
            file.write(block)
    path.unlink()


def report(case: Case, turns: dict[str, list[Measure]], *, as_json: bool) -> bool:
    """Print a case's line; return whether its target is missed."""
    medians = {name: middle(measures) for name, measures in turns.items()}
    ours, theirs = medians[TIDELOG], medians.get(KAFKA)
    ratio = None if theirs is None else ours.value / theirs.value
    is_missed = False
    if ratio is not None and case.target is not None:
        is_missed = ratio < case.target if case.is_more_better else ratio > case.target
    if as_json:
        told = {name: [one._asdict() for one in measures] for name, measures in turns.items()}
        print(json.dumps({"case": case.name, "unit": case.unit, "ratio": ratio, "target": case.target, **told}), flush=True)
        return is_missed
    sign = "" if case.target is None else f"{'≥' if case.is_more_better else '≤'} {case.target}"
    shown = [f"{'' if one is None else number(one.value):>10}" for one in (theirs, ours)]
    cpu = " → ".join("" if one is None or one.cpu is None else f"{one.cpu:.2f}" for one in (theirs, ours))
    times = " → ".join(
        "" if one is None or one.p99_us is None else f"{one.p50_us or 0:.0f}/{one.p99_us:.0f}" for one in (theirs, ours)
    )
    told_ratio = "" if ratio is None else f"{ratio:.2f}"
    mark = " missed" if is_missed else ""
    print(f"{case.name:45} {shown[0]} {shown[1]} {told_ratio:>6}  {sign:7}  {cpu:17}  {times}{mark}", flush=True)
    return is_missed


def note_row(table: str, case: Case, turns: dict[str, list[Measure]]) -> None:
    """Note a case's medians for docs/benchmarks.md, when both brokers ran it."""
    if len(turns) == len((KAFKA, TIDELOG)):
        theirs, ours = middle(turns[KAFKA]), middle(turns[TIDELOG])
        processor = None if theirs.cpu is None or ours.cpu is None else (theirs.cpu, ours.cpu)
        note(table, Figure(case.name, theirs.value, ours.value, case.unit, case.is_more_better, case.target, processor))


def middle(measures: Sequence[Measure]) -> Measure:
    """Return the median of each column."""
    columns = []
    for column in zip(*measures, strict=True):
        known = [one for one in column if one is not None]
        columns.append(statistics.median(known) if known else None)
    return Measure(*columns)  # type: ignore[arg-type]
