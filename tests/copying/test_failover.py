"""Failover: where a group goes on in a mirror, and what it then really reads, against a list of what it had read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.broker.conftest import RunningBroker
from tests.fields import check_fields
from tests.spark.mirroring import mirror_here
from tidelog import NewRecord
from tidelog.client.client import connect
from tidelog.client.connections.addresses import with_config
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets
from tidelog.copying.failover import FailoverOptions, PartitionFailover, apply_failover, plan_failover
from tidelog.copying.mirror_folder import SeenGroups, write_groups
from tidelog.copying.offset_map import MapRun, OffsetMapWriter
from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.model import TopicPartition
from tidelog.spark.jobs.mirror import MirrorOptions

NOW = 1_373_414_400_000  # 2013-07-10
LATENCY_MS = 500
"""The longest way of a record into the source."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    properties = {"offsets_topic_num_partitions": 1, "log_retention_ms": "-1"}
    started = [RunningBroker(tmp_path_factory.mktemp(name) / "data", **properties) for name in ("west", "east")]
    yield started[0], started[1]
    for one in started:
        one.stop()


def fill(source: RunningBroker, topic: str, count: int, seed: int) -> None:
    """Records that come every 10 ms, each up to LATENCY_MS after its CreateTime, in batches of a few."""
    chance = random.Random(seed)
    records = [
        NewRecord(b"%d" % at, timestamp=NOW + 10 * at - chance.choice([0, chance.randrange(LATENCY_MS), LATENCY_MS]), partition=0)
        for at in range(count)
    ]
    with connect(source.bootstrap_servers) as client:
        at = 0
        while at < count:
            size = chance.randint(1, 20)
            client.produce_many(topic, records[at : at + size])
            at += size


def mirror(patch: pytest.MonkeyPatch, source: RunningBroker, target: RunningBroker, folder: Path, **rest: object) -> None:
    servers = (source.bootstrap_servers, target.bootstrap_servers)
    mirror_here(patch, MirrorOptions(source=servers[0], target=servers[1], map_dir=str(folder), **rest))  # type: ignore[arg-type]


def numbers(broker: RunningBroker, topic: str, start: int = 0) -> list[int]:
    """What a consumer reads from an offset on."""
    with connect(broker.bootstrap_servers) as client:
        return [int(one.value or b"") for one in client.read(topic, isolation="read_committed") if one.offset >= start]


def plan(target: RunningBroker, **options: object) -> PartitionFailover:
    with connect(target.bootstrap_servers) as client:
        (found,) = plan_failover(client.cluster, FailoverOptions(**options))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_what_a_consumer_reads_then(
    brokers: tuple[RunningBroker, RunningBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    timestamp_type: str,
) -> None:
    """All that was not read, and twice as much as was said; by the map, and by time with and without one."""
    source, target = brokers
    topic = f"flights-{timestamp_type}-{seed}"
    count = 300
    source.create_topic(topic, 1, message_timestamp_type=timestamp_type)
    fill(source, topic, count // 2, seed)
    mirror(monkeypatch, source, target, tmp_path, topics=(topic,))
    fill(source, topic, count - count // 2, seed + 100)
    mirror(monkeypatch, source, target, tmp_path, topics=(topic,))
    chance = random.Random(seed)
    copied = numbers(target, topic)
    for committed in (0, chance.randrange(1, count), count):
        with connect(source.bootstrap_servers) as client:
            commit_offsets(client.cluster, topic, {TopicPartition(topic, 0): committed})
        unread = copied[committed:]
        write_groups(tmp_path, SeenGroups(NOW, {topic: {TopicPartition(topic, 0): committed}}))

        by_map = plan(target, group=topic, map_dir=tmp_path)
        assert by_map.is_exact
        assert numbers(target, topic, by_map.position) == unread
        assert (by_map.again, by_map.again_is_exact) == (0, True)

        for rest in ({"source": source.bootstrap_servers}, {}):
            by_time = plan(target, group=topic, map_dir=tmp_path, max_latency_ms=LATENCY_MS, by="time", **rest)
            seen = numbers(target, topic, by_time.position)
            assert seen[by_time.again :] == unread, "what was read twice comes first"
            assert by_time.again_is_exact

        if committed:
            alone = plan(target, group=topic, source=source.bootstrap_servers, max_latency_ms=LATENCY_MS)
            seen = numbers(target, topic, alone.position)
            assert seen[-len(unread) :] == unread or not unread
            assert len(seen) - len(unread) <= alone.again == len(seen)


def test_a_mirror_that_is_behind(
    brokers: tuple[RunningBroker, RunningBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = brokers
    source.create_topic("behind", 1)
    fill(source, "behind", 40, 1)
    mirror(monkeypatch, source, target, tmp_path, topics=("behind",))
    fill(source, "behind", 20, 2)
    with connect(source.bootstrap_servers) as client:
        commit_offsets(client.cluster, "g", {TopicPartition("behind", 0): 50})
    found = plan(target, group="g", map_dir=tmp_path, source=source.bootstrap_servers)
    assert (found.position, found.is_exact, found.again) == (40, False, 0)
    assert found.note == "10 offsets that the group has read are not in the mirror"


def test_a_map_with_gaps_and_a_latency_too_small(brokers: tuple[RunningBroker, RunningBroker], tmp_path: Path) -> None:
    target = brokers[1]
    target.create_topic("gaps", 1)
    with connect(target.bootstrap_servers) as client:
        client.produce_many("gaps", [NewRecord(b"%d" % at, timestamp=NOW + at, partition=0) for at in range(20)])
    with OffsetMapWriter(tmp_path, TopicPartition("gaps", 0), "gaps") as writer:
        writer.settle(None)
        writer.stage([MapRun(0, 9, 0, 0, 10), MapRun(10, 99, 0, 10, 5), MapRun(100, 104, 0, 15, 5)])
        writer.confirm()
    write_groups(tmp_path, SeenGroups(NOW, {"g": {TopicPartition("gaps", 0): 50}}))
    found = plan(target, group="g", map_dir=tmp_path)
    check_fields(found, position=10, is_exact=False, again=5, again_is_exact=False)
    write_groups(tmp_path, SeenGroups(NOW, {"g": {TopicPartition("gaps", 0): 5}}))
    found = plan(target, group="g", map_dir=tmp_path, max_latency_ms=-3, by="time")
    assert (found.position, found.by_map, found.again) == (5, 5, 0), "never after what the map says"
    assert "MaxLatency is too small" in found.note


def test_apply(brokers: tuple[RunningBroker, RunningBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = brokers
    source.create_topic("orders", 2)
    with connect(source.bootstrap_servers) as client:
        client.produce_many("orders", [NewRecord(b"%d" % at, timestamp=NOW + at, partition=at % 2) for at in range(40)])
        commit_offsets(client.cluster, "shop", {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 20})
    mirror(monkeypatch, source, target, tmp_path, topics=("orders",), groups=("shop",), prefix="west.")
    with connect(target.bootstrap_servers) as client:
        key = TopicPartition("west.orders", 0)
        assert committed_offsets(client.cluster, "shop")[key].offset == 7
        commit_offsets(client.cluster, "shop", {key: 0})
        planned = plan_failover(client.cluster, FailoverOptions(group="shop", map_dir=tmp_path, topics=("orders",)))
        assert [(one.position, one.by_time, one.again) for one in planned] == [(7, None, 0), (20, None, 0)]
        assert committed_offsets(client.cluster, "shop")[key].offset == 0
        apply_failover(client.cluster, "shop", planned)
        assert committed_offsets(client.cluster, "shop")[key].offset == 7
        with (
            connect(source.bootstrap_servers) as wrong,
            pytest.raises(InvalidArgumentError, match="into a different cluster"),
        ):
            plan_failover(wrong.cluster, FailoverOptions(group="shop", map_dir=tmp_path))
        until = FailoverOptions(
            group="other", topics=("orders",), prefix="west.", read_until_ms=NOW + 20, max_latency_ms=5, by="time"
        )
        planned = plan_failover(client.cluster, until)
        assert [(one.by_time, one.again, one.again_is_exact) for one in planned] == [(8, 12, False), (7, 13, False)]


def test_what_is_refused(brokers: tuple[RunningBroker, RunningBroker], tmp_path: Path) -> None:
    source, target = brokers
    with pytest.raises(InvalidArgumentError, match="it is unknown what the group has read"):
        plan(target, group="nobody")
    with pytest.raises(NotFoundError, match="group 'nobody'"):
        plan(target, group="nobody", source=source.bootstrap_servers)
    with pytest.raises(NotFoundError, match="group 'nobody'"):
        plan(target, group="nobody", map_dir=tmp_path)
    with pytest.raises(InvalidArgumentError, match="name the topics that the group has read"):
        plan(target, group="nobody", read_until_ms=NOW)
    with pytest.raises(NotFoundError, match="no topic 'nothing'"):
        plan(target, group="nobody", read_until_ms=NOW, topics=("nothing",))
    source.create_topic("alone", 1)
    with connect(source.bootstrap_servers) as client:
        commit_offsets(client.cluster, "lonely", {TopicPartition("alone", 0): 0})
    with pytest.raises(NotFoundError, match="none of the group's topics"):
        plan(target, group="lonely", source=source.bootstrap_servers)
    target.create_topic("alone", 1)
    OffsetMapWriter(tmp_path, TopicPartition("orders", 0), "west.orders").close()
    with connect(source.bootstrap_servers) as client:
        commit_offsets(client.cluster, "half", {TopicPartition("alone", 0): 0, TopicPartition("orders", 0): 0})
    with connect(target.bootstrap_servers) as client:
        options = FailoverOptions(group="half", source=source.bootstrap_servers, map_dir=tmp_path)
        alone, orders = plan_failover(client.cluster, options)
        assert (alone.position, alone.note) == (
            None,
            "no position is known: the partition has no offset map, and a time or MaxLatency is missing",
        )
        assert orders.position == 0
        apply_failover(client.cluster, "half", [alone, orders])
        assert list(committed_offsets(client.cluster, "half")) == [TopicPartition("west.orders", 0)]
    with pytest.raises(InvalidArgumentError, match="cannot find where group 'lonely'"):
        plan(target, group="lonely", source=source.bootstrap_servers)


def test_a_secured_mirror(tmp_path: Path) -> None:
    """The time of the last record that was read is its copy's: that is read by a cluster of its own, secured as well."""
    key = TopicPartition("events", 0)
    with tidelog.Broker(tmp_path / "data", tls=True, users={"alice": "of-tests"}, log_retention_ms="-1") as broker:
        broker.create_topic("events")
        with connect(broker.bootstrap_servers, **broker.client_config("tidelog")) as client:
            for at in range(3):
                client.produce("events", b"one", timestamp=NOW + at)
        with OffsetMapWriter(tmp_path / "map", key, "events") as writer:
            writer.settle(None)
            writer.stage([MapRun(0, 2, 0, 0, 3)])
            writer.confirm()
        write_groups(tmp_path / "map", SeenGroups(NOW, {"g": {key: 2}}))
        with Cluster.at(with_config(broker.bootstrap_servers, broker.client_config("tidelog")), "test") as cluster:
            (planned,) = plan_failover(cluster.reach(), FailoverOptions(group="g", map_dir=tmp_path / "map"))
    assert (planned.position, planned.last_read_ms) == (2, NOW + 1)
