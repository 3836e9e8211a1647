"""`tidelog verify --replicas` on the folders of two real brokers, one of which was killed in the middle of a load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.check.replicas.laying import flip
from tests.cli.conftest import run
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tidelog.check.replicas.partition_comparison import PartitionComparison
from tidelog.check.replicas.replicas_verify import verify_replicas
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.storage.folder.folder_format import format_folder

TOPICS: dict[str, dict[str, str]] = {
    "orders": {"segment.bytes": "60000"},
    "appended": {"message.timestamp.type": "LogAppendTime", "segment.bytes": "60000"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"},
}
PARTITIONS = 2
ROUND = 1500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "300",
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
        "log.cleaner.backoff.ms": "300",
        "replica.lag.time.max.ms": "3000",
    }
    folder = tmp_path_factory.mktemp("replicas")
    with KafkaCluster(folder, properties=properties) as cluster:
        # One folder by Kafka's tool, one by ours.
        format_folder(folder / "broker-2" / "data", cluster.cluster_id, 2)
        for node_id in (1, 2):
            cluster.broker(node_id)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wanted = [NewTopic(name, PARTITIONS, 2, config=config) for name, config in TOPICS.items()]
        wait_until(lambda: len(metadata(admin).brokers) == 2, "two brokers")
        make_topics(cluster.bootstrap, wanted)
        yield cluster


def test_two_brokers_of_kafka(cluster: KafkaCluster) -> None:
    one, two = cluster.brokers[1], cluster.brokers[2]
    folders = [one.data, two.data]
    load = _Load(cluster.bootstrap)
    load.some(ROUND)
    two.kill()
    load.some(ROUND)
    two.start()
    wait_until(load.all_in_sync, "both replicas in sync")
    load.some(ROUND)
    # Both brokers run, and write. What is above the smaller checkpoint of a high watermark is not looked at.
    load.some(ROUND, then=lambda: _assert_equal(folders))
    one.stop()
    wait_until(lambda: load.leaders() == {2}, "the other leader")
    load.some(ROUND)
    one.start()
    wait_until(load.all_in_sync, "both replicas in sync")
    wait_until(lambda: _cleaned(two.data) and _cleaned(one.data), "the cleaners of both")
    for node in (two, one):
        node.stop()
    found = _assert_equal(folders)
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            key = TopicPartition(topic, partition)
            comparison = found[key]
            assert comparison.range is not None and comparison.size_bytes > 0
            # Kafka writes all high watermarks when it stops; the one that stopped first had them all.
            assert comparison.range.end == load.ends[key]
    assert found[TopicPartition("orders", 0)].bytes_from == 0
    ran = run("verify", "--replicas", *map(str, folders))
    assert ran.exit_code == 0
    _assert_a_changed_byte_is_found(folders)


def _assert_equal(folders: list[Path]) -> dict[TopicPartition, PartitionComparison]:
    report = verify_replicas(folders, list(TOPICS), threads=2)
    assert report.is_equal, [
        (str(difference), list(map(str, difference.standings))) for one in report.partitions for difference in one.differences
    ]
    assert len(report.partitions) == len(TOPICS) * PARTITIONS
    return {one.key: one for one in report.partitions}


def _assert_a_changed_byte_is_found(folders: list[Path]) -> None:
    picked = random.Random(17)
    for topic in ("orders", "appended"):
        key = TopicPartition(topic, picked.randrange(PARTITIONS))
        with LogDir(folders[1]).log(*key) as log:
            segment, header = picked.choice(list(log.segment_headers()))
        byte = picked.randrange(header.size)
        for _ in range(2):
            flip(segment.log_path, header.position + byte)
            found = {one.key: one for one in verify_replicas(folders, [topic]).partitions}[key]
            if found.is_equal:
                break  # It was mended.
            (difference,) = found.differences
            assert difference.offset == header.base_offset
            assert (difference.standings[1].path, difference.standings[1].position) == (segment.log_path, header.position)
            assert difference.standings[0].is_sound
        assert found.is_equal


def _cleaned(folder: Path) -> bool:
    return any(key.topic == "compacted" for key in LogDir(folder).cleaner_offsets)


class _Load:
    """A producer that waits for all replicas, and what it was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 4000, "log_level": 0, "retries": 100}
        )
        self._sent = 0
        self.ends: dict[TopicPartition, int] = {}

    def some(self, count: int, then: Callable[[], object] | None = None) -> None:
        """Send so many records to each topic; between sending and waiting for the last of them do something else."""
        for number in range(self._sent, self._sent + count):
            for topic in TOPICS:
                key, value = b"key %d" % (number % 50), b"value %d " % number + b"x" * (number % 90)
                self._producer.produce(topic, value, key, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
        self._sent += count
        if then is not None:
            then()
        assert self._producer.flush(120) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        key = TopicPartition(message.topic(), message.partition())  # type: ignore[attr-defined]
        self.ends[key] = max(self.ends.get(key, 0), message.offset() + 1)  # type: ignore[attr-defined]

    def _partitions(self) -> list[object]:
        topics = metadata(self._admin).topics
        return [partition for name in TOPICS for partition in topics[name].partitions.values()]

    def all_in_sync(self) -> bool:
        return all(len(partition.isrs) == 2 for partition in self._partitions())  # type: ignore[attr-defined]

    def leaders(self) -> set[int]:
        return {partition.leader for partition in self._partitions()}  # type: ignore[attr-defined]
