"""Lets a cluster live while it is backed up, and kills its brokers, the storage and the backup meanwhile."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.backup_soak.model import Commit, Life
from tests.backup_soak.workload import REPLICAS, Workload, now_ms
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.tidelog_node import TIDELOG
from tests.patience import PATIENCE_S
from tests.s3.server import BUCKET, S3Server
from tidelog.backup.backup import open_backup
from tidelog.backup.layout import DATA, MANIFESTS, POINTS, PointName, parse_point
from tidelog.objects.address import options_of, with_options

PREFIX = "soak"
EVERY = "1s"
KINDS = ("backup", "backup", "brokers", "storage")
LEAST_KILLS = 3
"""Each kind is killed at least so often while records are written."""
MOST_TIMES = 5
WRITTEN_MS = 5_000
"""Records are written during a kill if some were acknowledged at most so long before and after."""
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.cleaner.backoff.ms": "500",
    "num.partitions": "1",
}


@dataclass
class Kill:
    """A process that was killed, and when it was there again, or before it was started again."""

    kind: str
    at_ms: int
    over_ms: int = 0
    is_amid_point: bool = False
    """Whether the backup had written objects of a point that did not exist yet."""


@dataclass
class History:
    """What happened, and the backup, now in a folder."""

    backup: Path
    lives: list[Life]
    commits: dict[str, list[Commit]]
    began_ms: int
    ended_ms: int
    kills: list[Kill]
    done: int

    def kills_while_written(self, kind: str) -> int:
        """How many kills there were while records were being written."""
        return kills_while_written(self.kills, self.lives)[kind]

    @property
    def record_times(self) -> tuple[int, int]:
        """The times between which records were sent after the first point."""
        times = [sent.timestamp for life in self.lives for sent in life.sent]
        return max(self.began_ms, min(times)), max(times)

    @property
    def summary(self) -> str:
        points = len(open_backup(self.backup).points())
        records = sum(len(one.sent) for one in self.lives)
        counts = Counter(one.kind for one in self.kills)
        kills = ", ".join(f"{what} {counts[what]} ({self.kills_while_written(what)})" for what in sorted(set(KINDS)))
        halved = sum(one.is_amid_point for one in self.kills)
        return (
            f"{self.done} actions, {records} records, {len(self.lives)} topics, {points} points; "
            f"killed (while records were written): {kills}; the backup in the middle of a point: {halved}"
        )


def kills_while_written(kills: list[Kill], lives: list[Life]) -> Counter[str]:
    """How many kills of each kind there were while records were being written."""
    times = sorted(sent.acknowledged_ms for life in lives for sent in life.sent)

    def some(after_ms: int, before_ms: int) -> bool:
        return bisect_left(times, before_ms) > bisect_left(times, after_ms)

    return Counter(
        one.kind for one in kills if some(one.at_ms - WRITTEN_MS, one.at_ms) and some(one.at_ms, one.over_ms + WRITTEN_MS)
    )


class Follower:
    """`tidelog backup --follow`, started again after each kill."""

    def __init__(self, source: str, target: str, folder: Path) -> None:
        config = folder / "bucket.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in (options_of(target) or {}).items()))
        self._command = [TIDELOG, "backup", source, str(target), "--target-config", str(config), "--follow", "--every", EVERY]
        self._log = (folder / "backup.log").open("w")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def keep(self) -> None:
        """Start it again if it has ended: the storage was gone when it began."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> bool:
        """Kill it. Return whether it was running."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return False
        process.kill()
        return process.wait() == -signal.SIGKILL

    def close(self) -> None:
        self.kill()
        self._log.close()


def history(folder: Path, seed: int, seconds: float, release: str = "3.9.1") -> History:
    """Live for so long."""
    rng = random.Random(seed)
    kills: list[Kill] = []
    with (
        S3Server(folder / "s3") as s3,
        KafkaCluster(folder / "cluster", release=release, properties=PROPERTIES, heap_mb=384) as cluster,
    ):
        for node in range(1, REPLICAS + 1):
            cluster.broker(node)
        workload = Workload(cluster, seed, ticks_per_second=20)
        target = with_options(s3.url(PREFIX), s3.options)
        follower = Follower(cluster.bootstrap, target, folder)
        try:
            follower.start()
            # No moment before the first point can be restored, and a slow machine takes it late.
            wait_until(lambda: bool(_points(s3)), "the first point", PATIENCE_S)
            began, began_ms = time.monotonic(), now_ms()
            kinds: list[str] = []

            def is_over() -> bool:
                """Whether it has lived long enough, and every kind was killed often enough; a slow machine gets more time."""
                passed, killed = time.monotonic() - began, kills_while_written(kills, workload.lives)
                return passed > seconds * (1 if all(killed[kind] >= LEAST_KILLS for kind in KINDS) else MOST_TIMES)

            while not is_over() and workload.failed is None:
                time.sleep(rng.uniform(1, 8))
                follower.keep()
                kinds = kinds or rng.sample(KINDS, len(KINDS))  # A random order, in which no kind is left out.
                kill = Kill(kinds.pop(), now_ms())
                if kill.kind == "backup":
                    if not follower.kill():
                        kinds.append(kill.kind)
                        continue
                    kill.is_amid_point = _is_amid_point(s3)
                elif kill.kind == "storage":
                    s3.kill()
                    time.sleep(rng.uniform(0.5, 4))
                    s3.start()
                else:
                    broker = cluster.brokers[rng.randint(1, REPLICAS)]
                    broker.kill()
                    time.sleep(rng.uniform(0.5, 8))
                    broker.start()
                kill.over_ms = now_ms()
                kills.append(kill)
            workload.stop()
            ended_ms = now_ms()

            def is_backed_up() -> bool:
                follower.keep()
                return any(name.time_ms > ended_ms for name in map(_name, _points(s3)) if name)

            wait_until(is_backed_up, "a point after the end", PATIENCE_S)
        finally:
            follower.close()
        backup = folder / "backup"
        shutil.copytree(s3.objects / BUCKET / PREFIX, backup)
    return History(backup, workload.lives, workload.commits, began_ms, ended_ms, kills, workload.done)


def _points(s3: S3Server) -> list[Path]:
    return list((s3.objects / BUCKET / PREFIX / POINTS).glob("*.json"))


def _is_amid_point(s3: S3Server) -> bool:
    top = s3.objects / BUCKET / PREFIX
    newest = max((path.stat().st_mtime_ns for path in _points(s3)), default=0)
    return any(path.stat().st_mtime_ns > newest for kind in (DATA, MANIFESTS) for path in (top / kind).rglob("*.*"))


def _name(path: Path) -> PointName | None:
    return parse_point(f"{POINTS}/{path.name}")
