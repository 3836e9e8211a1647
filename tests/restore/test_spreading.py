"""A topic restored into another number of partitions: each record once, where the partitioner sends its key, in the keys' order;
groups miss nothing that they had not read.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.copying.conftest import target as broker  # noqa: F401
from tests.restore.test_cluster import Dead
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets
from tidelog.clock import ManualClock
from tidelog.copying import copier
from tidelog.model import TopicPartition
from tidelog.records.kernel import murmur2
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

NOON = 1_373_457_600_000
SOURCES = 3
POSITIONS = {0: 40, 1: 0, 2: 70}
Row = tuple[bytes | None, bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Row]]]:
    """A backup of a topic with three partitions, and its rows."""
    folder = tmp_path_factory.mktemp("made")
    random = Random(3)
    clock = ManualClock(NOON)
    rows: list[list[Row]] = [[] for _ in range(SOURCES)]
    options: dict[str, Any] = {"offsets_topic_num_partitions": 1, "log_retention_ms": -1, "num_partitions": SOURCES}
    with (
        tidelog.Broker(data_dir=folder / "source", clock=clock, **options) as source,
        tidelog.connect(source.bootstrap_servers) as client,
        Cluster.at(source.bootstrap_servers, "test") as cluster,
    ):
        for number in range(100 * SOURCES):
            partition = number % SOURCES
            key = random.choice([None, b"", *(b"%d of %d" % (one, partition) for one in range(9))])
            row = key, b"%d" % number * random.randrange(40)
            client.produce(
                "orders", row[1], key=key, partition=partition, timestamp=NOON + number, headers=[("h", b"%d" % number)]
            )
            rows[partition].append(row)
        commit_offsets(cluster, "readers", {TopicPartition("orders", one): offset for one, offset in POSITIONS.items()})
    run_ok("backup", folder / "source", folder / "backup")
    return folder / "backup", rows


def chosen(key: bytes | None, count: int, partitioner: str) -> int | None:
    if key is None or (partitioner == "crc32" and not key):
        return None
    return (murmur2(key) & 0x7FFFFFFF if partitioner == "murmur2" else zlib.crc32(key)) % count


def restored(place: str, topic: str) -> Iterator[tuple[int, int, Row]]:
    for row in tidelog.scan(place, topic, isolation="read_committed").read_all().to_pylist():
        yield row["partition"], row["offset"], (row["key"], row["value"])


def in_order(rows: list[Row]) -> dict[bytes | None, list[bytes]]:
    """The values of each key in order; without a key there is no order."""
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return {key: sorted(values) if not key else values for key, values in found.items()}


def check(place: str, topic: str, rows: list[list[Row]], count: int, partitioner: str) -> None:
    found = sorted(restored(place, topic))
    assert in_order([row for _, _, row in found]) == in_order([row for part in rows for row in part])
    for partition, _, (key, _) in found:
        assert chosen(key, count, partitioner) in (None, partition)
    with Cluster.at(place, "test") as cluster:
        assert len(cluster.topics()[topic].partitions) == count
        positions = {
            key.partition: one.offset for key, one in committed_offsets(cluster, "readers").items() if key.topic == topic
        }
    assert positions.keys() == set(range(count))
    unread = in_order([row for number, part in enumerate(rows) for row in part[POSITIONS[number] :]])
    ahead = in_order([row for partition, offset, row in found if offset >= positions[partition]])
    for key, values in unread.items():
        assert not key or ahead[key][len(ahead[key]) - len(values) :] == values
        assert set(values) <= set(ahead[key])


@pytest.mark.parametrize(("count", "partitioner"), [(5, "murmur2"), (2, "crc32"), (1, "murmur2")])
def test_each_key_is_where_its_partitioner_sends_it(
    made: tuple[Path, list[list[Row]]],
    broker: tidelog.Broker,  # noqa: F811
    tmp_path: Path,
    count: int,
    partitioner: str,
) -> None:
    backup, rows = made
    name = f"spread-{count}"
    arguments = [
        "--partitions",
        f"orders={count}",
        "--partitioner",
        partitioner,
        "--rename",
        f"orders={name}",
        "--work",
        tmp_path,
    ]
    ran = run_ok("restore", backup, "--to", broker.bootstrap_servers, *arguments)
    assert ran.stdout.count("as in the backup") == SOURCES
    assert "not in the backup" not in ran.stderr
    check(broker.bootstrap_servers, name, rows, count, partitioner)
    other = run("restore", backup, "--to", broker.bootstrap_servers, *arguments[4:])
    assert other.exit_code == 1
    assert "the work folder belongs to a different restore" in other.error


def test_killed_between_any_two_chunks(
    made: tuple[Path, list[list[Row]]],
    broker: tidelog.Broker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backup, rows = made
    request = RestoreRequest(
        backup=str(backup), target=broker.bootstrap_servers, renames={"orders": "killed"}, partitions={"orders": 4}
    )
    confirmed = copier.OffsetMapWriter.confirm
    stage = copier.OffsetMapWriter.stage
    for survived in (1, 6):
        calls = iter(range(1000))
        with monkeypatch.context() as patched:

            def dies(writer: copier.OffsetMapWriter, *arguments: Any, calls: Any = calls, survived: int = survived) -> None:
                if next(calls) >= survived:
                    raise Dead
                (stage if arguments else confirmed)(writer, *arguments)

            patched.setattr(copier.OffsetMapWriter, "confirm", dies)
            patched.setattr(copier.OffsetMapWriter, "stage", dies)
            with pytest.raises(Dead):
                restore(plan_restore(request), ManualClock(NOON), work=tmp_path)
    report = restore(plan_restore(request), ManualClock(NOON), work=tmp_path)
    assert report.differences == []
    check(broker.bootstrap_servers, "killed", rows, 4, "murmur2")


def test_a_folder_keeps_its_partitions(made: tuple[Path, list[list[Row]]], tmp_path: Path) -> None:
    ran = run("restore", made[0], "--to", tmp_path / "folder", "--partitions", "orders=5")
    assert ran.exit_code == 1
    assert "the number of partitions can be changed only in a cluster" in ran.error
