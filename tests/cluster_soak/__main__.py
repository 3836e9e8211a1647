"""Clients write and read while brokers and controllers are killed, paused, cut off, out of disk, restarted.

    python -m tests.cluster_soak --brokers tidelog --faults 200 --seed 17

The controllers are Apache Kafka's (by Maven), the brokers Tidelog's, Kafka's or both. The schedule is drawn from the seed, and
printed: a run with the same arguments has the same faults. Disks can be full where a process may have mounts of its own.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from random import randrange

from tests.cluster_soak.schedule import KINDS, draw, short
from tests.cluster_soak.small_disk import is_inside, within_name_space
from tests.cluster_soak.soak import soak
from tests.cluster_soak.soak_cluster import KINDS as BROKERS
from tests.kafka.jars import why_not

NODES = (1, 2, 3)
CONTROLLERS = (3000, 3001, 3002)


def main(arguments: list[str]) -> int:
    """Return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", choices=BROKERS, default="tidelog", help="whose brokers [default: tidelog]")
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="how many [default: 200]; 0: one of each, short")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule [default: any]")
    parser.add_argument("--elections", type=int, default=50, metavar="N", help="turns of leaders at the end [default: 50]")
    parser.add_argument("--per-second", type=int, default=500, metavar="N", help="records sent in a second [default: 500]")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, metavar="N", help="begin no fault after so long [default: all are done]"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where nodes keep their data [default: a new one]")
    asked = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason)
        return 0
    seed = randrange(10_000) if asked.seed is None else asked.seed
    within_name_space(["-m", "tests.cluster_soak", *arguments, "--seed", str(seed)])
    kinds = [kind for kind in asked.kinds if is_inside() or kind != "full-disk"]
    faults = draw(seed, asked.faults, NODES, CONTROLLERS, kinds) if asked.faults else short(seed, NODES, CONTROLLERS)
    faults = [fault for fault in faults if fault.kind in kinds]
    print(
        f"{asked.brokers}, seed {seed}: {len(faults)} faults{'' if is_inside() else '; no mounts here, so disks are never full'}"
    )
    for fault in faults:
        print(f"  {fault.number:>3}  {fault}")
    with tempfile.TemporaryDirectory(prefix="cluster-soak-") as name:
        outcome = soak(
            asked.folder or Path(name, "cluster"),
            asked.brokers,
            faults,
            seed=seed,
            elections=asked.elections,
            per_second=asked.per_second,
            minutes=asked.minutes,
        )
        print(f"\n{asked.brokers}, seed {seed}")
        print(outcome.table())
        for sentence in outcome.wrong[:50]:
            print(f"WRONG: {sentence}")
    return 1 if outcome.wrong or outcome.lost or outcome.twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
