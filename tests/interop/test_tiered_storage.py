"""Real Kafka 3.9.1 with LocalTieredStorage: killed while it copies and deletes, then read as its consumer read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import tidelog
from tests.kafka import why_not
from tests.kafka.clients import Row, consume, create_topics, produce
from tests.kafka.clusters import KafkaCluster
from tests.kafka.generate_tiered import START_MS, rows
from tests.kafka.java import wait_until
from tests.kafka.tiered import JARS, SYSTEM, TOPIC, TieredKafka, local_tiered_storage
from tests.patience import PATIENCE_S
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP, TopicPartition
from tidelog.sources.opening import open_source, tiered

pytestmark = [pytest.mark.interop, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
KEY = TopicPartition("orders", 0)
ROUNDS = 2


def test_a_killed_broker(tmp_path: Path) -> None:
    with TieredKafka(tmp_path) as broker:
        broker.create_topic("orders", config={**TOPIC, "retention.bytes": "16000"})
        produce(broker.bootstrap, "orders", rows(300, 5), batch_records=5)
        broker.wait_until_tiered("orders")
        produce(broker.bootstrap, "orders", rows(200, 6, START_MS + 300_000), batch_records=5)
        broker.kill()
        broker.start()  # The next leader epoch: what was half copied is copied again.
        produce(broker.bootstrap, "orders", rows(100, 7, START_MS + 500_000), batch_records=5)
        broker.wait_until_tiered("orders")
        address = str(tiered(broker.data, str(broker.remote)))
        targets = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)

        def has_same_ends() -> bool:
            """Kafka may still be deleting local segments, and notices that later than the folder shows it."""
            with open_source(broker.bootstrap) as theirs, open_source(address) as ours:
                found = [[one.find({KEY: target})[KEY] for target in targets] for one in (theirs, ours, theirs)]
            return found[0] == found[1] == found[2]

        wait_until(has_same_ends, "the same ends", PATIENCE_S)
        served = consume(broker.bootstrap, "orders")
        with open_source(address) as ours:
            largest = ours.find({KEY: MAX_TIMESTAMP})[KEY]
            for time in sorted({row.timestamp for row in served})[::9]:
                first = next(row for row in served if row.timestamp >= time)
                one = ours.find({KEY: time})[KEY]
                assert one is not None and (one.offset, one.timestamp) == (first.offset, first.timestamp)
        best = max(served, key=lambda row: (row.timestamp, -row.offset))
        assert largest is not None and (largest.offset, largest.timestamp) == (best.offset, best.timestamp)
        read = tidelog.scan(broker.data, "orders", tier=str(broker.remote)).read_all().to_pylist()
        assert [(row["offset"], row["key"], row["value"]) for row in read] == [(row.offset, row.key, row.value) for row in served]


@pytest.mark.thorough("one killed broker: test_a_killed_broker; several leaders' segments: tests/reader/tiered/test_overlaps.py")
def test_leaders_that_are_killed_in_turn(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    properties = {
        **SYSTEM,
        **local_tiered_storage(remote),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "log.flush.start.offset.checkpoint.interval.ms": "500",
    }
    with KafkaCluster(tmp_path, properties=properties, jars=[JARS]) as cluster:
        brokers = [cluster.broker(number) for number in (1, 2)]
        create_topics(cluster.bootstrap, {"orders": {**TOPIC, "retention.bytes": "20000"}}, replicas=2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

        def leader() -> int:
            return int(admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"].partitions[0].leader)

        def are_in_sync() -> bool:
            topics = admin.list_topics(timeout=PATIENCE_S).topics.values()
            return all(
                len(one.isrs) == len(one.replicas) and one.leader > 0 for topic in topics for one in topic.partitions.values()
            )

        start = START_MS
        for number in range(ROUNDS):
            for count in (150, 80):
                produce(cluster.bootstrap, "orders", rows(count, number, start), batch_records=5)
                start += count * 1000
                if count == 150:
                    killed = cluster.brokers[leader()]
                    killed.kill()
            killed.start()
            wait_until(are_in_sync, "the replicas to be in sync", PATIENCE_S)
        produce(cluster.bootstrap, "orders", rows(40, 9, start), batch_records=5)

        def are_tiered() -> bool:
            with open_source(cluster.bootstrap) as theirs:
                first = theirs.find({KEY: EARLIEST})[KEY]
            served = consume(cluster.bootstrap, "orders")
            return first is not None and all(
                len(list((one.data / "orders-0").glob("*.log"))) <= 2
                and offsets(one.data, remote) == [row.offset for row in served]
                for one in brokers
            )

        wait_until(are_tiered, "the folders to have what the consumer gets", PATIENCE_S)
        served = consume(cluster.bootstrap, "orders")
        assert len({row.timestamp for row in served}) > 100
        for one in brokers:
            check(one.data, remote, served)


def offsets(data: Path, remote: Path) -> list[int]:
    found = tidelog.scan(data, "orders", tier=str(remote)).read_all()
    return [int(offset) for offset in found.column("offset").to_pylist()]


def check(data: Path, remote: Path, served: list[Row]) -> None:
    """Compare every answer from a folder with what the consumer got."""
    read = tidelog.scan(data, "orders", tier=str(remote)).read_all().to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in read] == [(row.offset, row.key, row.value) for row in served]
    with open_source(str(tiered(data, str(remote)))) as ours:
        earliest, largest = ours.find({KEY: EARLIEST})[KEY], ours.find({KEY: MAX_TIMESTAMP})[KEY]
        assert earliest is not None and earliest.offset == served[0].offset
        best = max(served, key=lambda row: (row.timestamp, -row.offset))
        assert largest is not None and (largest.offset, largest.timestamp) == (best.offset, best.timestamp)
        for time in sorted({row.timestamp for row in served})[::7]:
            first = next(row for row in served if row.timestamp >= time)
            one = ours.find({KEY: time})[KEY]
            assert one is not None and (one.offset, one.timestamp) == (first.offset, first.timestamp)
    times = sorted(row.timestamp for row in served)
    for start, end in ((times[20], times[60]), (times[-30], times[-1])):
        ranged = tidelog.scan(data, "orders", tier=str(remote), start=start, end=end).read_all().to_pylist()
        assert [row["offset"] for row in ranged] == [row.offset for row in served if start <= row.timestamp < end]
