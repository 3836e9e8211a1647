"""Brokers of ours as followers of Kafka's, and Kafka's as followers of ours: equal replicas, logs that part, consumers nearby."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.patience import PATIENCE_S
from tidelog.check.replicas.replicas_verify import verify_replicas

THEIRS, OURS = 1, 2
RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


class Cluster:
    """A controller, a broker of Kafka's in rack a, one of ours in rack b."""

    def __init__(self, folder: Path) -> None:
        # A follower that is paused has to be in sync still when its leader is killed, to be elected.
        properties = {"broker.session.timeout.ms": "15000", "replica.lag.time.max.ms": "30000", **RACK_AWARE}
        self.kafka = KafkaCluster(folder, properties=properties)
        self.kafka.__enter__()
        self.theirs = self.kafka.broker(THEIRS, {"broker.rack": "a"})
        self.ours = TidelogMember(self.kafka, OURS, {"broker.rack": "b"})
        self.ours.start()
        self.nodes: dict[int, Any] = {THEIRS: self.theirs, OURS: self.ours}
        self.bootstrap = f"{self.theirs.bootstrap},{self.ours.bootstrap}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def close(self) -> None:
        self.ours.kill()
        self.kafka.kill()

    def create(self, name: str, *leaders: int, **config: str) -> None:
        replicas = [[leader, THEIRS + OURS - leader] for leader in leaders]
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, len(leaders), replica_assignment=replicas, config=settings)
        make_topics(self.bootstrap, [topic])
        self.wait(name, lambda leader, isr: len(isr) == 2)

    def wait(self, topic: str, condition: Callable[[int, list[int]], bool]) -> None:
        def is_so() -> bool:
            partitions = metadata(self.admin, topic).topics[topic].partitions.values()
            return bool(partitions) and all(condition(one.leader, one.isrs) for one in partitions)

        wait_until(is_so, f"{topic}", PATIENCE_S)

    def produce(self, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 2, **settings})
        for value in values:
            producer.produce(topic, value, key=value[:5], partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def check_equal(self, topic: str, partitions: int) -> None:
        """Both folders have the same bytes, up to the last record; and epochs and log starts."""

        def is_equal() -> bool:
            logs = [[self._bytes(node.data, topic, number) for number in range(partitions)] for node in self.nodes.values()]
            return logs[0] == logs[1] and all(logs[0])

        wait_until(is_equal, f"equal replicas of {topic}", PATIENCE_S)
        report = verify_replicas([self.theirs.data, self.ours.data], [topic], threads=1)
        assert report.is_equal and len(report.partitions) == partitions

    def _bytes(self, data: Path, topic: str, partition: int) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((data / f"{topic}-{partition}").glob("*.log")))

    def read(self, topic: str, **settings: Any) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
                **settings,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
            values.append(message.value())
        consumer.close()
        return values


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("followers"))
    try:
        yield running
    finally:
        running.close()


def test_what_is_stored_is_the_leaders(cluster: Cluster) -> None:
    """Codecs, append times, transactions, segments: whoever leads, both folders are the same."""
    cluster.create("mixed", THEIRS, OURS, segment_bytes="60000")
    cluster.create("appended", THEIRS, OURS, message_timestamp_type="LogAppendTime", segment_bytes="60000")
    values = [b"%05d " % number + b"x" * (number % 700) for number in range(300)]
    for topic in ("mixed", "appended"):
        for partition in range(2):
            for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
                cluster.produce(topic, values, partition, **{"compression.type": codec, "acks": "all"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "me", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for is_kept in (True, False, True):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("mixed", b"in a transaction", partition=partition)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(PATIENCE_S)
    cluster.check_equal("mixed", 2)
    cluster.check_equal("appended", 2)


@pytest.mark.parametrize("leader", [THEIRS, OURS])
def test_logs_that_part(cluster: Cluster, leader: int) -> None:
    """The leader has records that its follower never got, and is killed: it cuts them when it comes back as a follower."""
    topic, follower = f"parted-{leader}", THEIRS + OURS - leader
    cluster.create(topic, leader)
    first = [b"both have %d" % number for number in range(200)]
    cluster.produce(topic, first, acks="all")
    cluster.nodes[follower].pause()
    for count in range(5):
        cluster.produce(topic, [b"lost %d" % number for number in range(100 * count, 100 * count + 100)], acks="1")
    cluster.nodes[leader].kill()
    cluster.nodes[follower].go_on()
    cluster.wait(topic, lambda led_by, isr: led_by == follower)
    later = [b"after %d" % number for number in range(100)]
    cluster.produce(topic, later, acks="all")
    cluster.nodes[leader].start()
    cluster.wait(topic, lambda led_by, isr: len(isr) == 2)
    cluster.produce(topic, [b"the end"], acks="all")
    cluster.check_equal(topic, 1)
    found = cluster.read(topic)
    assert found[:200] == first and found[-101:] == [*later, b"the end"]
    # The answer to the fetch that waited at the leader may have reached the follower before it was stopped.
    assert all(value.startswith(b"lost") for value in found[200:-101]) and len(found) < 200 + 500 + 101


@pytest.mark.parametrize(("rack", "leader", "expected"), [("b", THEIRS, OURS), ("a", OURS, THEIRS), ("a", THEIRS, THEIRS)])
def test_a_consumer_reads_in_its_rack(cluster: Cluster, rack: str, leader: int, expected: int) -> None:
    topic = f"near-{rack}-{leader}"
    cluster.create(topic, leader)
    values = [b"%05d" % number for number in range(500)]
    cluster.produce(topic, values, acks="all")
    brokers = set()

    def note(text: str) -> None:
        for one in json.loads(text)["topics"].get(topic, {}).get("partitions", {}).values():
            brokers.add(one["broker"])

    settings = {"client.rack": rack, "statistics.interval.ms": 50, "stats_cb": note, "fetch.message.max.bytes": 1000}

    def are_read_there() -> bool:
        brokers.clear()
        found = cluster.read(topic, **settings)
        assert found == values[: len(found)]
        # A follower learns with its next fetch what is committed: the end is where that is until then.
        return expected in brokers and found == values

    wait_until(are_read_there, "all records, and a fetch from there", PATIENCE_S)
