"""Backs up three brokers of Kafka into S3 while they work, and while brokers, the storage and the backup are killed.

Then the backup is restored at random moments, and each restore is compared with a plain model of the cluster.

    python -m tests.backup_soak --seconds 180 --moments 500 --seed 7
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.backup_soak.check import Checker
from tests.backup_soak.history import KINDS, LEAST_KILLS, History, history
from tests.kafka.jars import why_not


def main(arguments: list[str]) -> int:
    """Return 0 if every restore was as the model says, and everything was killed while records were written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180, help="how long the cluster lives [default: 180]")
    parser.add_argument("--moments", type=int, default=500, help="how many restores [default: 500]")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--release", default="3.9.1", help="of Kafka [default: 3.9.1]")
    parser.add_argument("--keep", type=Path, default=None, help="keep the history there, and check it again the next time")
    asked = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason)
        return 0
    seed = random.randrange(10_000) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="backup-soak-") as name:
        kept = None if asked.keep is None else asked.keep / "history"
        if kept is not None and kept.exists():
            made = pickle.loads(kept.read_bytes())
        else:
            made = history(asked.keep or Path(name), seed, asked.seconds, asked.release)
            if kept is not None:
                kept.write_bytes(pickle.dumps(made))
        print(made.summary, flush=True)
        checker = Checker(made, Path(name, "restored"))
        checker.check(random.Random(seed), asked.moments)
        print(checker.summary)
        for one in checker.differences:
            print(f"DIFFERENCE {one}")
        unmet = [*few_kills(made), *checker.few_partial()]
        for text in unmet:
            print(f"NOT TESTED {text}")
    return 1 if checker.differences or unmet else 0


def few_kills(made: History) -> Iterator[str]:
    """Yield what was not killed often enough while records were written."""
    for kind in sorted(set(KINDS)):
        found = made.kills_while_written(kind)
        if found < LEAST_KILLS:
            yield f"{kind}: killed {found} times while records were written, not {LEAST_KILLS}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
