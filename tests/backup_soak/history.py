"""Lets a cluster live while it is backed up, and kills its brokers, the storage and the backup meanwhile."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
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
from tidelog.backup.layout import POINTS, PointName, parse_point
from tidelog.objects.address import options_of, with_options

PREFIX = "soak"
EVERY = "1s"
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.cleaner.backoff.ms": "500",
    "num.partitions": "1",
}


@dataclass
class History:
    """What happened, and the backup, now in a folder."""

    backup: Path
    lives: list[Life]
    commits: dict[str, list[Commit]]
    began_ms: int
    ended_ms: int
    kills: dict[str, int]
    done: int

    @property
    def summary(self) -> str:
        points = len(open_backup(self.backup).points())
        records = sum(len(one.sent) for one in self.lives)
        kills = ", ".join(f"{what} {count}" for what, count in sorted(self.kills.items()))
        return f"{self.done} actions, {records} records, {len(self.lives)} topics, {points} points; killed: {kills}"


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

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        self.kill()
        self._log.close()


def history(folder: Path, seed: int, seconds: float, release: str = "3.9.1") -> History:
    """Live for so long."""
    rng = random.Random(seed)
    kills = dict.fromkeys(("backup", "brokers", "storage"), 0)
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
            while time.monotonic() - began < seconds and workload.failed is None:
                time.sleep(rng.uniform(1, 8))
                follower.keep()
                what = rng.choice(("backup", "backup", "brokers", "storage"))
                kills[what] += 1
                if what == "backup":
                    follower.kill()
                elif what == "storage":
                    s3.kill()
                    time.sleep(rng.uniform(0.5, 4))
                    s3.start()
                else:
                    node = cluster.brokers[rng.randint(1, REPLICAS)]
                    node.kill()
                    time.sleep(rng.uniform(0.5, 8))
                    node.start()
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


def _name(path: Path) -> PointName | None:
    return parse_point(f"{POINTS}/{path.name}")
