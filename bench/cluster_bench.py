"""Three brokers compared with Apache Kafka's three, under the same Kafka 3.9.1 controllers, with the same clients, in turn;
medians.

    python -m bench.cluster_bench [--runs 3] [--deaths 3] [--controllers 3] [--partitions 1000] [--only PART …] [--scale 1.0]

Needs Java, Maven and a C compiler. All seven or nine processes run all the time; each side's topics are on its own brokers, three
replicas of each, and clients wait for all of them. One warm-up run of each case precedes the runs that count, because a JVM gets
faster. Processor time is that of the side's three brokers. On a shared machine, run it under `nice -n -20`; processor time is
then the better figure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from itertools import count

from tests.kafka.jars import why_not

from bench.children.scratch import scratch
from bench.cluster.deaths import Death, death, prepare
from bench.cluster.loads import Run, loads
from bench.cluster.sides import KAFKA, TIDELOG, Side, both_sides

OUT = scratch("cluster")
STALL_BAR_MS = 200.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="three brokers beside Apache Kafka's, under its controllers")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--deaths", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3, choices=(1, 3))
    parser.add_argument("--partitions", type=int, default=1000, help="of the topic whose leaders move; each broker has a replica")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="cases whose names contain one of these")
    parser.add_argument("--scale", type=float, default=1.0, help="of the megabytes of each load")
    parser.add_argument("--tidelog", action="store_true", help="Tidelog alone: no ratios")
    parser.add_argument("--json", action="store_true", help="print one JSON line a case instead of the table")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 0
    names = [TIDELOG] if options.tidelog else [KAFKA, TIDELOG]
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    began = time.monotonic()
    missed = 0
    try:
        with both_sides(OUT, options.controllers, names) as sides:
            if not options.json:
                print(f"{'':34} {'Kafka':>9} {'Tidelog':>9}  ratio  target  CPU s/GB K → T  ratio  target", flush=True)
            missed += _loads(sides, options)
            if any(part in "deaths" for part in options.only or ["deaths"]):
                missed += _deaths(sides, options)
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    if not options.json:
        print(f"{time.monotonic() - began:.0f} s")
    return 1 if missed else 0


def _loads(sides: dict[str, Side], options: argparse.Namespace) -> int:
    missed, number = 0, count()
    for name, (run, unit, least, most_cpu) in loads(options.scale).items():
        if options.only and not any(part in name for part in options.only):
            continue
        turns: dict[str, list[Run]] = {one: [] for one in sides}
        for turn in range(options.runs + 1):
            for side in sides.values():
                found = run(side, f"load-{next(number)}")
                if turn:
                    turns[side.name].append(found)
        missed += _report(name, unit, turns, least, most_cpu, is_more_better=unit == "MB/s", as_json=options.json)
    return missed


def _deaths(sides: dict[str, Side], options: argparse.Namespace) -> int:
    for side in sides.values():
        prepare(side, options.partitions)
    turns: dict[str, list[Death]] = {one: [] for one in sides}
    for _ in range(options.deaths):
        for side in sides.values():
            turns[side.name].append(death(side, options.partitions))
    missed = 0
    lines = [
        ("kill -9 to ack, median", "s", "kill_to_ack_s", 1.0),
        ("… of the slowest partition", "s", "slowest_kill_to_ack_s", None),
        ("… from the election on", "s", "election_to_ack_s", 1.0),
        (f"{options.partitions:,} partitions: unfenced after", "s", "unfenced_s", 1.0),
        ("usual wait of others, p50", "ms", "usual_ms", None),
    ]
    for label, unit, field, most in lines:
        runs = {name: [Run(getattr(one, field)) for one in of_side] for name, of_side in turns.items()}
        missed += _report(label, unit, runs, most, None, is_more_better=False, as_json=options.json)
    stalls = {name: [Run(one.stall_ms) for one in of_side] for name, of_side in turns.items()}
    _report(f"longest wait of others (≤ {STALL_BAR_MS:g})", "ms", stalls, None, None, is_more_better=False, as_json=options.json)
    return missed + (statistics.median(one.stall_ms for one in turns[TIDELOG]) > STALL_BAR_MS)


def _report(
    name: str,
    unit: str,
    turns: dict[str, list[Run]],
    target: float | None,
    most_cpu: float | None,
    *,
    is_more_better: bool,
    as_json: bool,
) -> bool:
    """Print a line; return whether a target is missed. A ratio is Tidelog's figure divided by Kafka's."""
    values = {name: statistics.median(one.value for one in runs) for name, runs in turns.items()}
    spent = {name: [one.cpu_s_per_gb for one in runs if one.cpu_s_per_gb is not None] for name, runs in turns.items()}
    cpu = {name: statistics.median(some) for name, some in spent.items() if some}
    ratio = values[TIDELOG] / values[KAFKA] if KAFKA in values else None
    cpu_ratio = cpu[TIDELOG] / cpu[KAFKA] if KAFKA in cpu else None
    is_missed = ratio is not None and target is not None and (ratio < target if is_more_better else ratio > target)
    is_missed |= cpu_ratio is not None and most_cpu is not None and cpu_ratio > most_cpu
    if as_json:
        told = {side: [one._asdict() for one in runs] for side, runs in turns.items()}
        print(json.dumps({"case": name, "unit": unit, "ratio": ratio, "cpu_ratio": cpu_ratio, **told}), flush=True)
        return is_missed
    sign = "" if target is None else f"{'≥' if is_more_better else '≤'} {target:g}"
    shown = [f"{values[side]:>9.3g}" if side in values else f"{'':>9}" for side in (KAFKA, TIDELOG)]
    line = f"{name + ', ' + unit:34} {shown[0]} {shown[1]}  {'' if ratio is None else f'{ratio:.2f}':5}  {sign:6}"
    if cpu:
        used = " → ".join(f"{cpu[side]:.2f}" for side in (KAFKA, TIDELOG) if side in cpu)
        wanted = "" if most_cpu is None else f"≤ {most_cpu:g}"
        line += f"  {used:14}  {'' if cpu_ratio is None else f'{cpu_ratio:.2f}':5}  {wanted}"
    print(line.rstrip() + ("  missed" if is_missed else ""), flush=True)
    return is_missed


if __name__ == "__main__":
    sys.exit(main())
