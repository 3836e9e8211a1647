"""The longest stall that one client can cause another: Tidelog and Apache Kafka 3.9.1 in one run, one broker after the other.

    python -m bench.stall_bench [--rows PART …] [--runs 1] [--scale 1.0] [--tidelog] [--turns] [--json]

A well-behaved client in a separate process asks for an offset (or produces a record, in some rows) every 5 ms, while another
client does what the row's name describes. The table shows the longest and the median response time of the well-behaved client;
the rows are in `bench.broker.stalls`. A row fails above 100 ms, unless Kafka took longer in the same run. `--rows` takes parts of
the rows' names; use `--scale 0.1` for a trial run. Rows that Kafka cannot do in a reasonable time run on Tidelog only. `--turns`
also shows the longest turn of Tidelog's loop in processor time, which does not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import traceback

from tests.kafka.jars import why_not

from bench.broker import stalls
from bench.broker.clients import OUT
from bench.broker.peers import Peer
from bench.broker.stalls import ROWS, Row, Stall

LIMIT_MS = 100.0
KAFKA, TIDELOG = "kafka", "tidelog"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the longest stall that one client can cause another")
    parser.add_argument("--rows", "--only", nargs="+", default=[], metavar="PART", help="rows whose names contain one of these")
    parser.add_argument("--runs", type=int, default=1, help="the median run counts")
    parser.add_argument("--scale", type=float, default=1.0, help="of topics, partitions, elements")
    parser.add_argument("--tidelog", action="store_true", help="Tidelog alone")
    parser.add_argument("--turns", action="store_true", help="also measure the turns of Tidelog's loop")
    parser.add_argument("--json", action="store_true", help="print one JSON line a row")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason and not options.tidelog:
        print(f"{reason}: Tidelog alone", file=sys.stderr)
    names = [TIDELOG] if options.tidelog or reason else [KAFKA, TIDELOG]
    if not options.json:
        print(f"{'longest (median) wait of another client, ms':58} {'Kafka':>17} {'Tidelog':>17}", flush=True)
    is_missed = False
    for row in ROWS:
        if options.rows and not any(part in row.name for part in options.rows):
            continue
        found: dict[str, Stall] = {}
        for name in names:
            if name == KAFKA and not row.is_for_kafka:
                continue
            try:
                runs = [_measured(name, row, options.scale, with_turns=options.turns) for _ in range(options.runs)]
                found[name] = sorted(runs)[len(runs) // 2]
            except (OSError, RuntimeError, AssertionError):
                traceback.print_exc()
                print(f"{row.name}: failed on {name}", file=sys.stderr, flush=True)
                is_missed |= name == TIDELOG
        is_missed |= _report(row, found, as_json=options.json)
    shutil.rmtree(OUT, ignore_errors=True)
    return 1 if is_missed else 0


def _measured(name: str, row: Row, scale: float, *, with_turns: bool) -> Stall:
    turns = OUT / "turns" if with_turns and name == TIDELOG else None
    with Peer(name, OUT / f"{name}-stall", {**stalls.PROPERTIES, **row.properties}, turns=turns) as peer:
        stall = stalls.measure(peer, row, scale)
    if turns is None:
        return stall
    within = [lasted for at, lasted, _ in json.loads(turns.read_text()) if stall.began_s <= at <= stall.ended_s]
    return stall._replace(turn_ms=max(within, default=0.0))


def _report(row: Row, found: dict[str, Stall], *, as_json: bool) -> bool:
    ours, theirs = found.get(TIDELOG), found.get(KAFKA)
    is_missed = False
    if ours is not None and row.has_limit:
        is_missed = ours.longest_ms > max(LIMIT_MS, 0.0 if theirs is None else theirs.longest_ms)
    if as_json:
        shown = {name: stall._asdict() for name, stall in found.items()}
        print(json.dumps({"row": row.name, "is_missed": is_missed, **shown}), flush=True)
    else:
        cells = ["–" if one is None else f"{one.longest_ms:,.1f} ({one.p50_ms:.2f})" for one in (theirs, ours)]
        turn = "" if ours is None or ours.turn_ms is None else f"  longest turn {ours.turn_ms:.1f}"
        mark = " missed" if is_missed else ""
        print(f"{row.name:58} {cells[0]:>17} {cells[1]:>17}{turn}{mark}", flush=True)
    return is_missed


if __name__ == "__main__":
    sys.exit(main())
