"""A broker is killed, its indexes go, its logs get torn ends: Tidelog and Kafka recover the same folder to the same files.

Where a segment in the middle is damaged the indexes stay: without them Kafka recovers twice, the first time segment by segment,
and then does not notice that what follows the damage has lost its connection.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.kafka import Kafka391
from tests.kafka.golden_topics import BASE, Filler, plans
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.storage.loading.loader import load
from tidelog.storage.scheduler import Scheduler

TOPICS = ("transactions", "idempotent", "v2-zstd-ct")
DAMAGED = "v2-none-ct"
INDEXES = (".index", ".timeindex", ".txnindex")


def tear(folder: Path) -> None:
    """Leave a crash's worst: no indexes, no snapshots, no epochs, and half a batch after the log's end."""
    for path in folder.iterdir():
        if path.suffix in (*INDEXES, ".snapshot") or path.name == "leader-epoch-checkpoint":
            path.unlink()
    logs = sorted(folder.glob("*.log"))
    first = logs[0].read_bytes()
    with logs[-1].open("ab") as file:
        file.write(first[:100] if "transactions" in folder.name else bytes(3000))


def damage(folder: Path) -> None:
    """Flip a bit in a segment in the middle: what comes after it goes. Indexes are as the broker's death has left them."""
    path = sorted(folder.glob("*.log"))[-3]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, object]:
    """Return a folder's files, made comparable: preallocated ends cut, snapshots as sets of entries."""
    found: dict[str, object] = {}
    for path in folder.iterdir():
        if path.suffix in (".log", ".txnindex"):
            found[path.name] = path.read_bytes()
        elif path.suffix in INDEXES:
            found[path.name] = path.read_bytes().rstrip(b"\0")
        elif path.suffix == ".snapshot":
            found[path.name] = sorted(read_snapshot(path))
    # A leader that has just been elected notes its own epoch.
    found["epochs"] = LeaderEpochs.read(folder / "leader-epoch-checkpoint").entries[:1]
    return found


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two copies of one data folder: recovered by Kafka, and left to Tidelog."""
    folder = tmp_path_factory.mktemp("killed")
    broker = Kafka391(folder)
    broker.start()
    filler = Filler(broker, 7)
    filler.begin_ms = int(time.time() * 1000) - 3_600_000  # Producers of another day would be forgotten.
    for topic in (*TOPICS, DAMAGED):
        plans("3.9.1")[topic](filler, topic)
    broker.kill()
    for path in broker.data.glob("*-checkpoint"):
        path.unlink()
    for topic in TOPICS:
        tear(broker.partition_folder(topic))
    damage(broker.partition_folder(DAMAGED))
    ours = folder / "ours"
    shutil.copytree(broker.data, ours)
    broker.start()
    broker.kill()
    return broker.data, ours


@pytest.mark.parametrize("topic", [*TOPICS, DAMAGED])
def test_same_files_as_kafka(recovered: tuple[Path, Path], topic: str) -> None:
    kafkas, ours = (folder / f"{topic}-0" for folder in recovered)
    clock = SystemClock()
    log = load(ours, LogConfig.from_properties(dict(BASE)), clock, Scheduler(clock), had_clean_shutdown=False)
    log.flush()
    expected, found = contents(kafkas), contents(ours)
    assert sorted(found) == sorted(expected)
    assert found == expected
    assert log.log_end_offset > 0
