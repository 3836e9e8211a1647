"""The steps of docs/cluster-of-brokers.md, with Kafka's tools: a broker of ours beside two of Kafka's, and in place of one."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.cli.conftest import run
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.java_tools import run_tool
from tests.kafka.tidelog_node import TidelogNode
from tests.patience import PATIENCE_S
from tidelog.check.replicas.replicas_verify import verify_replicas

TOPIC, PARTITIONS = "orders", 2
TIMEOUT_S = PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "400",
        "replica.high.watermark.checkpoint.interval.ms": "300",
        # Groups outlive the broker that is taken out.
        "offsets.topic.replication.factor": "2",
    }
    with KafkaCluster(tmp_path_factory.mktemp("steps"), properties=properties) as cluster:
        for node_id in (1, 2):
            cluster.broker(node_id)
        yield cluster


class _Clients:
    """Records that were acknowledged by all replicas, and what a consumer finds."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.brokers[1].bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.sent: list[bytes] = []

    def create(self) -> None:
        wait_until(lambda: len(metadata(self.admin).brokers) == 2, "two brokers")
        make_topics(self.bootstrap, [NewTopic(TOPIC, PARTITIONS, 2)])

    def produce(self, count: int = 500) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
        errors: list[object] = []
        for number in range(len(self.sent), len(self.sent) + count):
            self.sent.append(b"order %d" % number)
            producer.produce(TOPIC, self.sent[-1], on_delivery=lambda error, _: error and errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert not errors

    def consumed_all(self) -> list[bytes]:
        """Return what the test before has left: as many as the ends say."""
        self.sent = [b""] * sum(self._ends())
        return self.consumed()

    def _ends(self) -> list[int]:
        ends = self.admin.list_offsets({TopicPartition(TOPIC, n): OffsetSpec.latest() for n in range(PARTITIONS)})  # type: ignore[no-untyped-call]
        return [end.result(TIMEOUT_S).offset for end in ends.values()]

    def consumed(self) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"g{time.monotonic_ns()}",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        end = time.monotonic() + TIMEOUT_S
        while len(found) < len(self.sent) and time.monotonic() < end:
            found += [message.value() for message in consumer.consume(1000, timeout=1) if message.error() is None]
        consumer.close()
        return found

    def in_sync(self, *nodes: int) -> bool:
        partitions = metadata(self.admin).topics[TOPIC].partitions.values()
        return len(partitions) == PARTITIONS and all(set(partition.isrs) == set(nodes) for partition in partitions)

    def leaders(self) -> set[int]:
        return {partition.leader for partition in metadata(self.admin).topics[TOPIC].partitions.values()}

    def move(self, path: Path, *replicas: int) -> None:
        """Move all partitions, as an operator does: execute, and verify until they are there."""
        path.write_text(
            json.dumps(
                {"version": 1, "partitions": [{"topic": TOPIC, "partition": n, "replicas": replicas} for n in range(PARTITIONS)]}
            )
        )
        arguments = ["--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(path)]
        assert "Successfully started" in self._tool(
            "reassign.ReassignPartitionsCommand", *arguments, "--execute", "--throttle", "50000000"
        )
        wait_until(lambda: self.in_sync(*replicas), f"replicas {replicas} in sync", TIMEOUT_S)

        def is_completed() -> bool:  # The controllers end it after the replicas are in sync, and tell the brokers after that.
            verified = self._tool("reassign.ReassignPartitionsCommand", *arguments, "--verify")
            return verified.count("is completed") == PARTITIONS and "Clearing broker-level throttles" in verified

        wait_until(is_completed, "the reassignments to be completed", TIMEOUT_S)

    def elect_preferred(self) -> None:
        self._tool(
            "LeaderElectionCommand",
            "--bootstrap-server",
            self.bootstrap,
            "--election-type",
            "preferred",
            "--all-topic-partitions",
        )

    def unregister(self, node_id: int) -> str:
        return self._tool("ClusterTool", "unregister", "--bootstrap-server", self.bootstrap, "--id", str(node_id))

    def _tool(self, name: str, *arguments: str) -> str:
        return run_tool(self.cluster.release, f"org.apache.kafka.tools.{name}", arguments)


def test_a_broker_is_added_moved_to_killed_and_taken_out(cluster: KafkaCluster, tmp_path: Path) -> None:
    clients = _Clients(cluster)
    clients.create()
    clients.produce()
    ours = TidelogNode(cluster, 3)
    try:
        ours.start()
        clients.move(tmp_path / "to.json", 3, 1)
        clients.elect_preferred()
        wait_until(lambda: clients.leaders() == {3}, "our broker leads")
        clients.produce()
        ours.kill()
        wait_until(lambda: clients.leaders() == {1}, "the other leads")
        clients.produce()
        ours.start()
        wait_until(lambda: clients.in_sync(1, 3), "our broker in sync again", TIMEOUT_S)
        clients.produce()
        ours.stop()
        shutil.rmtree(ours.data)
        ours = TidelogNode(cluster, 3)
        ours.start()
        wait_until(lambda: clients.in_sync(1, 3), "our broker in sync on its new disk", TIMEOUT_S)
        wait_until(lambda: "replicas were assigned to directory.id" in ours.log, "its folder to be known")
        clients.elect_preferred()
        wait_until(lambda: clients.leaders() == {3}, "our broker leads again")
        clients.produce()
        folders = [cluster.brokers[1].data, ours.data]
        assert verify_replicas(folders, [TOPIC]).is_equal
        for command in (("verify", str(ours.data)), ("stat", str(ours.data), TOPIC), ("retention", str(ours.data), TOPIC)):
            assert run(*command).exit_code == 0, command
        assert sorted(clients.consumed()) == sorted(clients.sent)
        clients.move(tmp_path / "back.json", 1, 2)
        wait_until(lambda: not list(ours.data.glob(f"{TOPIC}-?")), "its folders are gone")
        ours.stop()
        assert "no longer registered" in clients.unregister(3)
    finally:
        ours.kill()
    assert sorted(clients.consumed()) == sorted(clients.sent)


@pytest.mark.thorough("a folder that changes hands: test_kraft_member; the other steps: the test above")
def test_a_broker_of_kafkas_becomes_one_of_ours_and_back(cluster: KafkaCluster) -> None:
    """With its node id and its data, one after another, as at an upgrade."""
    clients = _Clients(cluster)
    clients.sent = clients.consumed_all()
    theirs = cluster.brokers[2]
    theirs.stop()
    clients.produce(100)
    ours = TidelogNode(cluster, 2)
    try:
        ours.start()
        wait_until(lambda: clients.in_sync(1, 2), "our broker in sync", TIMEOUT_S)
        clients.produce(100)
        ours.stop()
    finally:
        ours.kill()
    clients.produce(100)
    theirs.start()
    wait_until(lambda: clients.in_sync(1, 2), "Kafka's broker in sync", TIMEOUT_S)
    clients.produce(100)
    assert sorted(clients.consumed()) == sorted(clients.sent)
    for node in (theirs, cluster.brokers[1]):
        node.stop()
    (*partitions,) = verify_replicas([cluster.brokers[1].data, theirs.data], [TOPIC]).partitions
    assert [one.is_equal for one in partitions] == [True] * PARTITIONS
    assert sum(one.range.end for one in partitions if one.range is not None) == len(clients.sent)
