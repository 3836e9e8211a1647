"""`make migration`: play the plan, print what happens, draw it into demo/out/migration/migration.svg."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.kafka.jars import why_not
from tests.migration import judge
from tests.migration.picture import picture
from tests.migration.play import TOPIC, Play, playing

OUT = Path(__file__).resolve().parents[2] / "demo" / "out" / "migration"

STEPS = (
    Play.begin,
    Play.phase_1_code,
    Play.canary_before,
    Play.kafkas_canary,
    Play.protocol_raised,
    Play.canary_after,
    Play.phase_2,
    Play.way_back,
    Play.newest,
)
SHORT = (Play.begin, Play.phase_1_code, Play.canary_before, Play.protocol_raised, Play.phase_2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="up to phase 2, without the ways back and Kafka 2.4.1")
    parser.add_argument("--no-kills", action="store_true", help="every broker is stopped in order, none is killed")
    asked = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(reason)
        return 1
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    with playing(OUT, say, kills=not asked.no_kills, measure_s=2) as play:
        for step in SHORT if asked.short else STEPS:
            step(play)
        play.end()
        path = OUT / "migration.svg"
        path.write_text(picture(play.steps))
        print(f"\n$ tidelog verify --replicas … --topic {TOPIC}\n{judge.verified(play.nodes.values(), TOPIC).stdout}\n{path}")
        for line in play.wrong:
            print(line)
        return 1 if play.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
