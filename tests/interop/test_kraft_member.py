"""Brokers of ours under controllers of Apache Kafka 3.9.1, beside one of Kafka's: they join, follow, lead, and go.

One cluster for all of the module: tests leave it with every broker running. Records are counted by what producers were promised.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.cli.test_serve import serving
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port, is_listening, wait_until
from tests.kafka.members import TidelogMember
from tests.patience import PATIENCE_S

KAFKAS = 1
OURS = (2, 3)


class Cluster:
    """A controller, a broker of Kafka's, two of ours."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.members = {node_id: TidelogMember(kafka, node_id) for node_id in OURS}
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return ",".join([self.kafka.bootstrap, *(member.bootstrap for member in self.members.values())])

    def create(self, name: str, assignment: list[list[int]], **config: str) -> None:
        topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
        make_topics(self.bootstrap, [topic])

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and in-sync replicas of each partition."""
        found = metadata(self.admin, topic).topics[topic].partitions
        return {number: (one.leader, sorted(one.isrs)) for number, one in found.items()}

    def wait_in_sync(self, topic: str, replicas: list[int]) -> None:
        """Wait until each broker says so: one that stood still says for a moment what was."""
        admins = [AdminClient({"bootstrap.servers": one, "log_level": 0}) for one in self.bootstrap.split(",")]

        def are_in_sync() -> bool:
            said = [metadata(admin, topic).topics[topic].partitions.values() for admin in admins]
            return all(one and all(sorted(partition.isrs) == replicas for partition in one) for one in said)

        wait_until(are_in_sync, f"{replicas} to be in sync with {topic}", PATIENCE_S)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> list[int]:
        """Append with acks=all, idempotently, and return the offsets."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})

        def done(error: object, message: object) -> None:
            assert error is None, error
            offsets.append(message.offset())  # type: ignore[attr-defined]

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=done)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        return offsets

    def values(self, topic: str, partition: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = []
        while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
            values.append(message.value())
        consumer.close()
        return values

    def check_values(self, topic: str, partition: int, expected: list[bytes]) -> None:
        """All of these can be read: a leader that has just been elected learns of its followers what is committed."""
        found: list[bytes] = []

        def are_read() -> bool:
            found[:] = self.values(topic, partition)
            return len(found) >= len(expected) or found != expected[: len(found)]

        with suppress(TimeoutError):
            wait_until(are_read, f"{len(expected)} records of {topic}-{partition}", PATIENCE_S)
        assert found == expected

    def data(self, node_id: int) -> Path:
        return self.members[node_id].data if node_id in self.members else self.kafka.brokers[node_id].data

    def digest(self, node_id: int, topic: str, partition: int) -> str:
        paths = sorted((self.data(node_id) / f"{topic}-{partition}").glob("*.log"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()

    def check_same(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Replicas are the same, byte for byte, once the last follower has fetched the last record."""
        wait_until(lambda: len({self.digest(one, topic, partition) for one in replicas}) == 1, f"equal {topic}", PATIENCE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), properties={"broker.session.timeout.ms": "6000"}) as kafka:
        kafka.broker(KAFKAS)
        cluster = Cluster(kafka)
        try:
            for member in cluster.members.values():
                member.start()
            yield cluster
        finally:
            for member in cluster.members.values():
                member.kill()


def numbered(text: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (text.encode(), number) for number in range(count)]


def test_follows_leads_and_takes_over(cluster: Cluster) -> None:
    """Kafka leads one partition and we another; then ours is stopped and back; then Kafka's is killed, and we lead."""
    replicas = [KAFKAS, OURS[0]]
    cluster.create("orders", [replicas, replicas[::-1]])
    cluster.wait_in_sync("orders", replicas)
    expected: dict[int, list[bytes]] = {0: [], 1: []}

    def produce(text: str) -> None:
        for partition, values in expected.items():
            new = numbered(f"{text}-{partition}", 500)
            assert cluster.produce("orders", partition, new) == list(range(len(values), len(values) + 500))
            values += new

    produce("first")
    ours = cluster.members[OURS[0]]
    assert ours.stop() == 0
    wait_until(lambda: {leader for leader, _ in cluster.partitions("orders").values()} == {KAFKAS}, "Kafka's to lead", PATIENCE_S)
    produce("without ours")
    ours.start()
    cluster.wait_in_sync("orders", replicas)
    theirs = cluster.kafka.brokers[KAFKAS]
    theirs.kill()
    wait_until(lambda: {leader for leader, _ in cluster.partitions("orders").values()} == {OURS[0]}, "ours to lead", PATIENCE_S)
    produce("without Kafka's")
    theirs.start()
    cluster.wait_in_sync("orders", replicas)
    produce("last")
    for partition, values in expected.items():
        cluster.check_values("orders", partition, values)
        cluster.check_same("orders", partition, replicas)


def test_a_broker_that_is_killed_loses_nothing_that_was_promised(cluster: Cluster) -> None:
    everyone = [KAFKAS, *OURS]
    cluster.create("payments", [[OURS[0], OURS[1], KAFKAS]], **{"min.insync.replicas": "2"})
    cluster.wait_in_sync("payments", everyone)
    expected = numbered("first", 300)
    cluster.produce("payments", 0, expected)
    cluster.members[OURS[0]].kill()
    more = numbered("while it is dead", 300)
    cluster.produce("payments", 0, more)
    expected += more
    cluster.members[OURS[0]].start()
    cluster.wait_in_sync("payments", everyone)
    cluster.members[OURS[1]].pause()
    more = numbered("while one is paused", 300)
    cluster.produce("payments", 0, more)
    expected += more
    cluster.members[OURS[1]].go_on()
    cluster.wait_in_sync("payments", everyone)
    cluster.check_values("payments", 0, expected)
    cluster.check_same("payments", 0, everyone)


def test_the_controller_may_restart(cluster: Cluster) -> None:
    (controller,) = cluster.kafka.controllers
    controller.kill()
    member = cluster.members[OURS[0]]
    member.wait_for("waiting for the controllers")
    controller.start()
    cluster.create("afterwards", [list(OURS)])
    cluster.wait_in_sync("afterwards", list(OURS))
    assert cluster.produce("afterwards", 0, numbered("it", 10)) == list(range(10))


def test_a_folder_changes_hands(cluster: Cluster) -> None:
    """A broker of Kafka's goes on with our folder, and we with what it leaves: replicas, and the copy of the metadata."""
    replicas = [KAFKAS, OURS[1]]
    cluster.create("handed-over", [replicas])
    cluster.wait_in_sync("handed-over", replicas)
    expected = numbered("ours", 100)
    cluster.produce("handed-over", 0, expected)
    ours = cluster.members[OURS[1]]
    assert ours.stop() == 0
    assert list(ours.data.glob("__cluster_metadata-0/*.checkpoint"))
    theirs = KafkaNode("3.9.1", ours.folder, OURS[1], ours.port, ours.properties, 256)
    try:
        theirs.start()
        cluster.wait_in_sync("handed-over", replicas)
        cluster.produce("handed-over", 0, numbered("theirs", 100))
        theirs.stop()
    finally:
        theirs.kill()
    ours.start()
    cluster.wait_in_sync("handed-over", replicas)
    cluster.produce("handed-over", 0, numbered("ours again", 100))
    cluster.check_values("handed-over", 0, expected + numbered("theirs", 100) + numbered("ours again", 100))
    cluster.check_same("handed-over", 0, replicas)


# --- what it says where it cannot join


def test_a_node_id_that_is_taken(cluster: Cluster) -> None:
    twin = TidelogMember(cluster.kafka, KAFKAS, {"initial.broker.registration.timeout.ms": "10000"})
    twin.begin()
    assert twin.ended() == 1
    assert f"another broker with node.id={KAFKAS} is running" in twin.said()


def test_a_folder_of_another_cluster(cluster: Cluster) -> None:
    stranger = TidelogMember(cluster.kafka, 41, cluster_id="AAAAAAAAQQCQAAAAAAAAAg")
    stranger.begin()
    assert stranger.ended() == 1
    assert "the controllers belong to a different cluster" in stranger.said()


def test_a_folder_of_another_broker(cluster: Cluster) -> None:
    other = TidelogMember(cluster.kafka, 42)
    other.properties["node.id"] = "43"
    other.begin()
    assert other.ended() == 1
    assert "the folder belongs to a different node: found 42, expected 43" in other.said()


def test_a_copy_of_another_brokers_folder(cluster: Cluster) -> None:
    """With another node id, but the same directory id. Kafka's broker tries it until its registration times out."""
    twin = TidelogMember(cluster.kafka, 46)
    text = (cluster.data(KAFKAS) / "meta.properties").read_text()
    (twin.data / "meta.properties").write_text(text.replace(f"node.id={KAFKAS}", "node.id=46"))
    twin.begin()
    assert twin.ended() == 1
    assert "Each folder needs its own directory.id): found INVALID_REGISTRATION" in twin.said()


def test_a_folder_that_is_not_formatted(cluster: Cluster) -> None:
    new = TidelogMember(cluster.kafka, 44)
    (new.data / "meta.properties").unlink()
    new.begin()
    assert new.ended() == 1
    assert "`tidelog format`" in new.said()


def test_controllers_that_cannot_be_reached(cluster: Cluster) -> None:
    lonely = TidelogMember(cluster.kafka, 45)
    lonely.properties["controller.quorum.voters"] = f"3000@127.0.0.1:{free_port()}"
    lonely.begin()
    lonely.wait_for("waiting for the controllers")
    assert not is_listening(lonely.port), "clients are refused, and try another broker"
    assert lonely.stop() == 0, "a signal ends the wait"


def test_several_members_by_one_command(cluster: Cluster) -> None:
    """`serve --processes` under Kafka's controllers: members with the next node ids, which replicate to each other."""
    folder, nodes = cluster.kafka.folder / "many", (11, 12)
    for number, node_id in enumerate(nodes, start=1):
        cluster.kafka.format(folder / f"process{number}", node_id)
    given = {**cluster.kafka.member_properties(nodes[0], 1, folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    given.pop("advertised.listeners", None)
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    with serving(folder, "--processes", len(nodes), "--config", config) as server:
        wait_until(lambda: set(nodes) <= metadata(cluster.admin).brokers.keys(), "both", PATIENCE_S)
        cluster.create("both", [list(nodes), list(nodes[::-1])])
        cluster.wait_in_sync("both", list(nodes))
        cluster.produce("both", 0, numbered("both", 100))
        cluster.check_values("both", 0, numbered("both", 100))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, server.log
