"""Real Kafka 3.9.1 with LocalTieredStorage: killed while it copies and deletes, then read as its consumer read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import tidelog
from tests.kafka import why_not
from tests.kafka.clients import Row, consume, create_topics, metadata, produce
from tests.kafka.clusters import KafkaCluster
from tests.kafka.generate_tiered import START_MS, rows
from tests.kafka.java import wait_until
from tests.kafka.tiered import JARS, SYSTEM, TOPIC, TieredKafka, local_tiered_storage
from tests.patience import PATIENCE_S
from tidelog.errors import SegmentChangedError
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP, TopicPartition
from tidelog.reader.time_search import FoundOffset
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
        targets = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)

        def is_as_served() -> bool:
            return agrees(broker.bootstrap, [broker.data], broker.remote, targets)

        wait_until(is_as_served, "the folder to have what the consumer gets", PATIENCE_S)


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
            return int(metadata(admin, "orders").topics["orders"].partitions[0].leader)

        def are_in_sync() -> bool:
            topics = metadata(admin).topics.values()
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
            folders = [one.data for one in brokers]
            few = all(len(list((one / "orders-0").glob("*.log"))) <= 2 for one in folders)
            return few and agrees(cluster.bootstrap, folders, remote, (EARLIEST, LATEST_TIERED))

        wait_until(are_tiered, "the folders to have what the consumer gets", PATIENCE_S)
        assert len({row.timestamp for row in consume(cluster.bootstrap, "orders")}) > 100


def agrees(bootstrap: str, folders: list[Path], remote: Path, targets: tuple[int, ...]) -> bool:
    """Compare every answer from the folders with what the consumer gets; False while Kafka still copies or deletes.

    Retention may take a segment between what the consumer gets and what the folders show, also long after the last copy. It moves
    the log start first, which never goes back. So the answers are of one state if the ends before them and after them are equal.
    """

    def ends() -> list[list[FoundOffset | None]]:
        found = []
        for address in (bootstrap, *(str(tiered(one, str(remote))) for one in folders)):
            with open_source(address) as one:
                found.append([one.find({KEY: target})[KEY] for target in targets])
        return found

    before = ends()
    if any(one != before[0] for one in before):
        return False
    try:
        served = consume(bootstrap, "orders")
        for one in folders:
            check(one, remote, served)
    except (AssertionError, SegmentChangedError):
        if ends() == before:
            raise
        return False
    return True


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
