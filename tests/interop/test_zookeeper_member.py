"""A broker of ours under a controller of ZooKeeper's days, beside brokers of Kafka's: it joins, follows, leads, goes, comes back.

What is judged is what lies in the folders: sha256 of each replica. A broker of Kafka's is the controller throughout.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker.raw import RawClient
from tests.interop.gate import first_of
from tests.kafka.clients import make_topics, metadata
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeepers import ROOT, ZookeeperCluster
from tidelog.formats.batch_walk import walk
from tidelog.formats.files import ReadOnlyFile
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

TIMEOUT_S = 120
KAFKAS, OURS = 1, 2


class Mixed:
    """A broker of Kafka's, and one of ours."""

    def __init__(self, cluster: ZookeeperCluster) -> None:
        self.cluster = cluster
        self.kafka = cluster.broker(KAFKAS)
        self.member = TidelogMember(cluster, OURS)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return f"{self.cluster.bootstrap},{self.member.bootstrap}"

    def create(self, name: str, assignment: list[list[int]], **config: str) -> None:
        topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
        make_topics(self.bootstrap, [topic])

    def alter(self, name: str, **config: str) -> None:
        """Set a topic's properties, all of them, as Kafka's tools did: by ZooKeeper."""
        note = {"version": 1, "entity_type": "topics", "entity_name": name}
        with self.cluster.client() as client:
            client.set(f"{ROOT}/config/topics/{name}", json.dumps({"version": 1, "config": config}).encode())
            client.create(f"{ROOT}/config/changes/config_change_", json.dumps(note).encode(), sequence=True)

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and in-sync replicas of each partition."""
        found = metadata(self.admin, topic).topics[topic].partitions
        return {number: (one.leader, sorted(one.isrs)) for number, one in found.items()}

    def wait_for(self, topic: str, isr: list[int], leader: int | None = None, partition: int = 0) -> None:
        wait_until(
            lambda: (
                (found := self.partitions(topic).get(partition)) is not None and found[1] == isr and leader in (None, found[0])
            ),
            f"{topic} to have {isr} in sync, led by {leader}",
            TIMEOUT_S,
        )

    def produce(self, topic: str, text: str, partition: int = 0, count: int = 300) -> None:
        """Append with acks=all."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
        failed: list[object] = []
        for number in range(count):
            producer.produce(
                topic,
                f"{text}-{number}",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not failed

    def settle(self, topic: str, end: int) -> None:
        """Wait until both replicas know that all below `end` is committed.

        Formats before v2 have no leader epochs: a replica that does not know yet cuts what was acknowledged when its leader moves
        (KIP-101), in Kafka as here.
        """
        for data in (self.kafka.data, self.member.data):
            path = data / "replication-offset-checkpoint"
            wait_until(lambda path=path: f"{topic} 0 {end}\n" in path.read_text(), f"{path} to have {topic} {end}", TIMEOUT_S)  # type: ignore[misc]

    def move(self, topic: str, replicas: list[int]) -> None:
        """Have partition 0 led by the first of the replicas."""
        path = f"{ROOT}/admin/reassign_partitions"
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}
        wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
        with self.cluster.client() as client:
            wait_until(lambda: client.exists(path) is None, "the last reassignment", TIMEOUT_S)
            client.create(path, json.dumps(plan).encode())
            wait_until(lambda: client.exists(path) is None, "the reassignment", TIMEOUT_S)
            client.create(f"{ROOT}/admin/preferred_replica_election", json.dumps(wanted).encode())
        self.wait_for(topic, sorted(replicas), replicas[0])

    def digest(self, data: Path, topic: str, partition: int) -> str:
        paths = sorted((data / f"{topic}-{partition}").glob("*.log"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()

    def check_same(self, topic: str, partition: int = 0) -> None:
        """Replicas are the same, byte for byte, once the follower has the last record."""
        wait_until(
            lambda: self.digest(self.kafka.data, topic, partition) == self.digest(self.member.data, topic, partition),
            f"equal replicas of {topic}-{partition}",
            TIMEOUT_S,
        )
        assert self.digest(self.member.data, topic, partition) != hashlib.sha256().hexdigest()

    def magics(self, topic: str) -> list[int]:
        """The formats of a topic's batches here, in their order."""
        found: list[int] = []
        for path in sorted((self.member.data / f"{topic}-0").glob("*.log")):
            with ReadOnlyFile(path) as file:
                found += [header.magic for header in walk(file, 0, file.size_bytes())]
        return [magic for at, magic in enumerate(found) if at == 0 or magic != found[at - 1]]


@contextmanager
def mixed(folder: Path, release: str, protocol: str) -> Iterator[Mixed]:
    with ZookeeperCluster(folder, release=release, properties={"inter.broker.protocol.version": protocol}) as cluster:
        both = Mixed(cluster)
        try:
            both.member.start()
            yield both
        finally:
            both.member.kill()


@pytest.mark.parametrize(
    ("release", "protocol"), first_of(("3.9.1", "3.9"), ("3.9.1", "2.4"), why="protocol 2.4: test_zookeeper_faults")
)
def test_member(tmp_path: Path, release: str, protocol: str) -> None:
    with mixed(tmp_path, release, protocol) as both:
        follows_and_leads(both)
        lists_the_same_apis(both)
        if protocol != "3.9":
            formats_are_raised(both)
        comes_back_after_a_kill(both)
        comes_back_after_a_lost_session(both)
        goes_in_order(both)


def follows_and_leads(both: Mixed) -> None:
    both.create("orders", [[KAFKAS, OURS], [OURS, KAFKAS]])
    for partition in (0, 1):
        both.wait_for("orders", [KAFKAS, OURS], (KAFKAS, OURS)[partition], partition)
        both.produce("orders", "first", partition)
        both.check_same("orders", partition)


def lists_the_same_apis(both: Mixed) -> None:
    """Clients guess from ApiVersions what they talk to: a member is what Kafka is beside it."""

    def listed(port: int) -> list[ApiVersion]:
        with RawClient(("127.0.0.1", port)) as client:
            answer: ApiVersionsResponse = client.ask(ApiVersionsRequest("test", "1"), 3)
        assert (answer.supported_features, answer.finalized_features) == ([], [])
        return [ApiVersion(-1, 0, answer.finalized_features_epoch), *sorted(answer.api_keys, key=lambda one: one.api_key)]

    theirs = listed(_port(both.kafka.bootstrap))
    wait_until(lambda: listed(_port(both.member.bootstrap)) == theirs, f"the member to list {theirs}", TIMEOUT_S)


def _port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


def formats_are_raised(both: Mixed) -> None:
    """KIP-32's second phase: the format is raised twice while leaders move; both keep what each of them has written."""
    small = {"segment.bytes": "1000000"}
    both.create("formats", [[KAFKAS, OURS]], **{"message.format.version": "0.9.0", **small})
    both.produce("formats", "a", count=50)
    both.settle("formats", 50)
    both.move("formats", [OURS, KAFKAS])
    both.produce("formats", "b", count=50)
    both.settle("formats", 100)
    # The leader is Kafka's each time that the format is raised, and ours from then on: it has to know by then.
    both.move("formats", [KAFKAS, OURS])
    both.alter("formats", **{"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime", **small})
    both.member.wait_for("topics/formats")
    both.move("formats", [OURS, KAFKAS])
    both.produce("formats", "c", count=50)
    both.settle("formats", 150)
    both.move("formats", [KAFKAS, OURS])
    both.alter("formats", **{"message.format.version": "0.11.0", **small})
    wait_until(lambda: both.member.said().count("topics/formats") > 1, "the second change of properties", TIMEOUT_S)
    both.move("formats", [OURS, KAFKAS])
    both.produce("formats", "d", count=50)
    both.check_same("formats")
    assert both.magics("formats") == [0, 1, 2]


def comes_back_after_a_kill(both: Mixed) -> None:
    both.member.kill()
    both.wait_for("orders", [KAFKAS], KAFKAS, 1)
    both.produce("orders", "alone")
    both.produce("orders", "alone", 1)
    both.member.start()
    for partition in (0, 1):
        both.wait_for("orders", [KAFKAS, OURS], partition=partition)
        both.check_same("orders", partition)


def comes_back_after_a_lost_session(both: Mixed) -> None:
    both.member.pause()
    try:
        with both.cluster.client() as client:
            wait_until(lambda: client.exists(f"{ROOT}/brokers/ids/{OURS}") is None, "the session's end", TIMEOUT_S)
        both.wait_for("orders", [KAFKAS], KAFKAS)
        both.produce("orders", "paused")
    finally:
        both.member.go_on()
    both.wait_for("orders", [KAFKAS, OURS])
    both.check_same("orders")
    # It follows before it is registered again.
    wait_until(lambda: both.member.said().count("registered as broker") >= 2, "another registration", TIMEOUT_S)


def goes_in_order(both: Mixed) -> None:
    """Deleted topics go, leaders move elsewhere before the end, and what was led is as it was."""
    both.create("short", [[OURS, KAFKAS]])
    both.produce("short", "gone soon")
    both.admin.delete_topics(["short"])["short"].result(TIMEOUT_S)
    wait_until(lambda: not (both.member.data / "short-0").exists(), "the deleted topic's folder to go", TIMEOUT_S)
    both.move("orders", [OURS, KAFKAS])
    both.produce("orders", "last")
    both.check_same("orders")
    assert both.member.stop() == 0
    both.wait_for("orders", [KAFKAS], KAFKAS)
    both.produce("orders", "after")
