"""Where the golden data is, and what its brokers answered (tests/golden/README.md)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.places import placed
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.tiered.tiered_log_dir import open_log_dir

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASES = ("kafka-3.9.1", "kafka-2.4.1")


class Case(NamedTuple):
    release: str
    kind: str  # "log": after a clean shutdown; "live": copied while the broker ran
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.release}-{self.kind}-{self.topic}-{self.partition}"

    def open(self, **options: Any) -> Log:
        return open_log_dir(placed(GOLDEN / self.release / self.kind)).log(self.topic, self.partition, **options)

    @property
    def expected(self) -> dict[str, Any]:
        (found,) = (one for one in expected(self.release)[self.topic] if one["partition"] == self.partition)
        return found


@cache
def expected(release: str) -> dict[str, list[dict[str, Any]]]:
    return json.loads((GOLDEN / release / "expected.json").read_text())["topics"]


def cases() -> list[Case]:
    found = []
    for release in RELEASES:
        for kind in ("log", "live"):
            for topic, partitions in LogDir(GOLDEN / release / kind).topics().items():
                found += [Case(release, kind, topic, partition) for partition in partitions if topic in expected(release)]
    return found
