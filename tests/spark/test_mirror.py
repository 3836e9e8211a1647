"""The job `mirror` between brokers of Tidelog: rows, topics, positions, groups; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.conftest import start_broker as start_broker
from tests.cli.conftest import run, run_ok
from tests.spark.mirroring import mirror_here
from tests.storage.known_topics import forget
from tidelog import NewRecord
from tidelog.client.client import connect
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.clock import ManualClock
from tidelog.copying.mirror_folder import read_groups
from tidelog.copying.offset_map import OffsetMap
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from tidelog.groups.positions import source_position
from tidelog.model import TopicPartition
from tidelog.spark.jobs.mirror import MirrorOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_373_414_400_000  # 2013-07-10
KEPT = {"log_retention_ms": "-1"}
"""Records of 2013 would go at the brokers' first look."""

Rows = list[tuple[object, ...]]


def produce(broker: RunningBroker, topic: str, count: int, *, first: int = 0, partitions: int = 1) -> None:
    with connect(broker.bootstrap_servers) as client:
        client.produce_many(
            topic,
            [
                NewRecord(
                    b"v%d" % at, key=b"k%d" % at, timestamp=NOW + at, headers=(("h", b"%d" % at),), partition=at % partitions
                )
                for at in range(first, first + count)
            ],
        )


def rows(broker: RunningBroker, topic: str) -> Rows:
    """Everything but the offsets, in order."""
    table = tidelog.scan(broker.bootstrap_servers, topic, isolation="read_committed").read_all()
    return [(row["partition"], row["key"], row["value"], row["timestamp"], str(row["headers"])) for row in table.to_pylist()]


def offsets(broker: RunningBroker, topic: str) -> dict[tuple[int, bytes], int]:
    table = tidelog.scan(broker.bootstrap_servers, topic, isolation="read_committed").read_all()
    return {(row["partition"], row["value"]): row["offset"] for row in table.to_pylist()}


def options(source: RunningBroker | Path, target: RunningBroker, folder: Path, **rest: object) -> MirrorOptions:
    place = source.bootstrap_servers if isinstance(source, RunningBroker) else str(source)
    return MirrorOptions(source=place, target=target.bootstrap_servers, map_dir=str(folder), **rest)  # type: ignore[arg-type]


def check_map(source: RunningBroker, target: RunningBroker, folder: Path, topic: str, target_topic: str) -> None:
    maps = OffsetMap.open(folder)
    there = offsets(target, target_topic)
    for (partition, value), offset in offsets(source, topic).items():
        assert maps.target_of(topic, partition, offset) == (there[partition, value], True)


def test_rounds(start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("orders", 2, retention_ms="-1", cleanup_policy="delete", max_message_bytes="2000000")
    source.create_topic("empty", 1)
    source.create_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    produce(source, "orders", 200, partitions=2)
    produce(source, "stamped", 10)
    folder = tmp_path / "map"
    wanted = options(source, target, folder)
    first = mirror_here(monkeypatch, wanted)
    assert rows(target, "orders") == rows(source, "orders")
    assert [row[:3] for row in rows(target, "stamped")] == [row[:3] for row in rows(source, "stamped")]
    properties = target.on_loop(lambda: {t: dict(target.node.manager.topic(t).properties) for t in ("orders", "stamped")})
    assert properties == {
        "orders": {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "2000000"},
        "stamped": {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"},
    }
    assert {(row["topic"], row["partition"], row["records"]) for row in first.rows} == {
        ("orders", 0, 100),
        ("orders", 1, 100),
        ("empty", 0, 0),
        ("stamped", 0, 10),
    }
    check_map(source, target, folder, "orders", "orders")
    assert OffsetMap.open(folder).target_of("empty", 0, 0) == (0, False)

    assert [row["records"] for row in mirror_here(monkeypatch, wanted).rows] == [0, 0, 0, 0], "nothing is new"
    produce(source, "orders", 50, first=200, partitions=2)
    source.create_topic("late", 1)
    produce(source, "late", 5)
    more = mirror_here(monkeypatch, wanted)
    assert {(row["topic"], row["partition"]): row["records"] for row in more.rows if row["records"]} == {
        ("late", 0): 5,
        ("orders", 0): 25,
        ("orders", 1): 25,
    }
    assert rows(target, "orders") == rows(source, "orders")
    check_map(source, target, folder, "orders", "orders")


def test_follow_takes_new_partitions_and_syncs_groups(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("orders", 1)
    produce(source, "orders", 30)
    seen = 0

    def is_done() -> bool:
        nonlocal seen
        seen += 1
        if seen == 1:
            source.on_loop(lambda: source.node.manager.add_partitions("orders", 3))
            produce(source, "orders", 30, first=30, partitions=3)
            with connect(source.bootstrap_servers) as client:
                commit_offsets(client.cluster, "readers", {TopicPartition("orders", 0): 33, TopicPartition("orders", 2): 4})
        return seen == 3

    wanted = options(source, target, tmp_path / "map", groups=None, prefix="west.")
    done = mirror_here(monkeypatch, wanted, follow=True, pause_ms=1, is_done=is_done, clock=ManualClock(NOW))
    assert rows(target, "west.orders") == rows(source, "orders")
    assert sum(row["records"] for row in done.rows) == 60
    there = offsets(target, "west.orders")
    value = {(partition, offset): text for (partition, text), offset in offsets(source, "orders").items()}
    with connect(target.bootstrap_servers) as client:
        synced = {key: one.offset for key, one in committed_offsets(client.cluster, "readers").items()}
    assert synced == {
        TopicPartition("west.orders", 0): there[0, value[0, 33]],
        TopicPartition("west.orders", 2): there[2, value[2, 4]],
    }
    known = read_groups(tmp_path / "map")
    assert known is not None
    assert known.seen_ms == NOW
    assert known.groups == {"readers": {TopicPartition("orders", 0): 33, TopicPartition("orders", 2): 4}}


def test_a_folder_is_mirrored(start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    produce(source, "stamped", 20)
    with connect(source.bootstrap_servers) as client:
        commit_offsets(client.cluster, "readers", {TopicPartition("stamped", 0): 7})
    expected = rows(source, "stamped")
    source.stop()
    forget(source.data_dir)  # As a folder of Kafka's whose metadata is elsewhere.
    mirror_here(monkeypatch, options(source.data_dir, target, tmp_path / "map", groups=("readers",)))
    assert [row[:3] for row in rows(target, "stamped")] == [row[:3] for row in expected]
    kind = target.on_loop(lambda: target.node.manager.topic("stamped").properties)
    assert kind == {"message.timestamp.type": "LogAppendTime"}, "as the last batch has it"
    with connect(target.bootstrap_servers) as client:
        assert committed_offsets(client.cluster, "readers")[TopicPartition("stamped", 0)].offset == 7


def test_what_is_refused(start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("orders", 1)
    produce(source, "orders", 10)
    folder = tmp_path / "map"
    wanted = options(source, target, folder)
    mirror_here(monkeypatch, wanted)
    with pytest.raises(InvalidArgumentError, match="same cluster"):
        mirror_here(monkeypatch, options(source, source, tmp_path / "other"))
    with pytest.raises(InvalidArgumentError, match="same cluster"):
        mirror_here(monkeypatch, options(source.data_dir, source, tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(InvalidArgumentError, match="the folder belongs to a different mirror: its job_id differs"):
        mirror_here(monkeypatch, options(source, target, folder, job_id="mine"))
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'none'"):
        mirror_here(monkeypatch, options(source, target, folder, topics=("none",)))
    with pytest.raises(InvalidArgumentError, match="pattern"):
        mirror_here(monkeypatch, options(source, target, folder, pattern="("))
    produce(source, "orders", 10, first=10)
    source.on_loop(lambda: source.node.manager.log("orders", 0).maybe_increment_log_start_offset(15))
    with pytest.raises(OffsetOutOfRangeError, match="orders-0: 5 offsets were deleted"):
        mirror_here(monkeypatch, wanted)
    (row,) = mirror_here(monkeypatch, options(source, target, folder, skip_lost=True)).rows
    assert (row["lost"], row["records"], row["next_offset"]) == (5, 5, 20)
    source.on_loop(lambda: source.node.manager.delete_topic("orders"))
    source.create_topic("orders", 1)
    with pytest.raises(OffsetOutOfRangeError, match="if the topic was recreated"):
        mirror_here(monkeypatch, wanted)


def test_what_a_killed_run_has_open(start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction, which has a position, is not waited for: its brokers would end it two minutes later."""
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("orders", 1)
    produce(source, "orders", 10)
    wanted = options(source, target, tmp_path / "map", job_id="copies")
    mirror_here(monkeypatch, wanted)
    place = TopicPartition("orders", 0)

    def killed(position: int) -> BatchAppender:
        appender = BatchAppender(cluster, transactional_id="copies-orders-0", transaction_timeout_ms=600_000)
        appender.init()
        appender.begin()
        appender.send_offsets("copies", {place: (position, source_position(*place))})
        return appender

    with connect(target.bootstrap_servers) as client:
        cluster = client.cluster
        produce(source, "orders", 10, first=10)
        killed(20)
        (row,) = mirror_here(monkeypatch, wanted).rows
        assert (row["from_offset"], row["records"], row["next_offset"]) == (10, 10, 20)
        # What it was about is gone in the source.
        produce(source, "orders", 10, first=20)
        source.on_loop(lambda: source.node.manager.log("orders", 0).maybe_increment_log_start_offset(25))
        killed(25)
        with pytest.raises(OffsetOutOfRangeError, match="orders-0: 5 offsets were deleted"):
            mirror_here(monkeypatch, wanted)
        # What was committed is not lost.
        former = killed(25)
        former.commit()
        (row,) = mirror_here(monkeypatch, wanted).rows
        assert (row["lost"], row["records"], row["next_offset"]) == (0, 5, 30)
    assert [row[2] for row in rows(target, "orders")] == [b"v%d" % at for at in (*range(20), *range(25, 30))]


@pytest.mark.spark
def test_on_spark_from_the_shell(spark: SparkSession, start_broker: StartBroker, tmp_path: Path) -> None:
    source, target = start_broker(**KEPT), start_broker(**KEPT)
    source.create_topic("orders", 2)
    source.create_topic("others", 1)
    produce(source, "orders", 100, partitions=2)
    ran = run_ok(
        *("job", "mirror", source.bootstrap_servers, "--target", target.bootstrap_servers, "--map", tmp_path / "map"),
        *("--pattern", "ord.*", "--json", "--rows", tmp_path / "rows.json"),
    )
    (line,) = ran.json_lines
    expected = {"topic": "orders", "partitions": 2, "records": 100, "behind": 0, "is_exact": True}
    assert {name: line[name] for name in expected} == expected
    assert rows(target, "orders") == rows(source, "orders")
    with connect(target.bootstrap_servers) as client:
        commit_offsets(client.cluster, "shop", {TopicPartition("orders", 0): 0})
    with connect(source.bootstrap_servers) as client:
        commit_offsets(client.cluster, "shop", {TopicPartition("orders", 0): 30})
    ran = run_ok(
        *("job", "failover", target.bootstrap_servers, "--group", "shop", "--map", tmp_path / "map"),
        *("--source", source.bootstrap_servers, "--max-latency", "20", "--json", "--apply"),
    )
    (line,) = ran.json_lines
    # Of two partitions in turns each has every second millisecond: 29 was made at 58, and 19 at 38.
    expected = {"position": 30, "by_map": 30, "by_time": 19, "read_again": 0}
    assert {name: line[name] for name in expected} == expected
    with connect(target.bootstrap_servers) as client:
        assert committed_offsets(client.cluster, "shop")[TopicPartition("orders", 0)].offset == 30
    assert "HOST:PORT of the mirror" in run("job", "failover", tmp_path, "--group", "shop").stderr
    written = [json.loads(text) for text in (tmp_path / "rows.json").read_text().splitlines()]
    assert [(row["partition"], row["next_offset"]) for row in written] == [(0, 50), (1, 50)]


def test_the_four_steps(start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-32: (T0, -1) is produced; cluster 1 has (T0, T1); the mirror hands T0 on; cluster 2 has (T0, T2)."""
    t0, t1, t2 = NOW, NOW + 5_000, NOW + 60_000
    source, target = start_broker(clock=ManualClock(t1), **KEPT), start_broker(clock=ManualClock(t2), **KEPT)
    source.create_topic("steps", 1, message_timestamp_type="LogAppendTime")
    with connect(source.bootstrap_servers) as client:
        client.produce_many("steps", [NewRecord(b"%d" % at, timestamp=t0 + at) for at in range(10)], compression="lz4")
    mirror_here(monkeypatch, options(source, target, tmp_path / "map"))
    for broker, append_ms in ((source, t1), (target, t2)):
        columns = ["timestamp", "timestamp_type", "create_time"]
        table = tidelog.scan(broker.bootstrap_servers, "steps", columns=columns).read_all()
        assert set(table.column("timestamp").cast("int64").to_pylist()) == {append_ms}
        assert set(table.column("timestamp_type").to_pylist()) == {1}
        assert table.column("create_time").cast("int64").to_pylist() == [t0 + at for at in range(10)]
