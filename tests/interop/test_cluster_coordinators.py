"""Exactly once in a cluster whose coordinators are killed: Tidelog's brokers, alone or beside Kafka's, under Kafka's controller.

The copies, what is done to them, and how they are counted is in `tests/broker/eos/copying.py`. What dies here is the coordinator
of the copiers' group, or that of a copier's transactional id: others take over while it is away, and it comes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from demo.cluster_nodes import Node, brokers

from tests.broker.eos.copying import GROUP, Copying, Launch, python_copier
from tests.examples import IS_SOAK
from tests.interop.test_exactly_once import java_copier
from tests.kafka.clients import metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.groups.offsets_topic import java_hash
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
}
PARTITIONS = 2
"""Of each of the internal topics: see `KafkaCluster`."""


class Coordinators:
    """The cluster, as `Copying` ends and starts it: always a broker that coordinates something of the copiers'."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.killed: list[str] = []
        self._nodes = nodes
        self._away: Node | None = None
        self._turns = itertools.cycle([(OFFSETS_TOPIC, GROUP), (TRANSACTIONS_TOPIC, "copier-0")])

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes.values())

    def kill(self) -> None:
        self._take_away().kill()

    def stop(self) -> None:
        self._take_away().stop()

    def start(self) -> None:
        """Have it come back, once others have all its partitions."""
        assert self._away is not None
        away = self._away.node_id
        wait_until(
            lambda: away not in self._leaders(OFFSETS_TOPIC) + self._leaders(TRANSACTIONS_TOPIC), "others to lead", PATIENCE_S
        )
        self._away.start()

    def _take_away(self) -> Node:
        topic, identity = next(self._turns)
        leader = self._leaders(topic)[abs(java_hash(identity)) % PARTITIONS]
        self.killed.append(topic)
        self._away = self._nodes[leader]
        return self._away

    def _leaders(self, topic: str) -> list[int]:
        living = [node for node in self._nodes.values() if node is not self._away]
        admin = AdminClient({"bootstrap.servers": ",".join(node.bootstrap for node in living), "log_level": 0})
        found = metadata(admin, topic).topics[topic].partitions
        return [found[number].leader for number in range(PARTITIONS)]


@contextmanager
def coordinators(folder: Path, kinds: list[str], release: str) -> Iterator[Coordinators]:
    with (
        KafkaCluster(folder / "cluster", release=release, properties=PROPERTIES) as cluster,
        brokers(cluster, kinds) as nodes,
    ):
        yield Coordinators(nodes)


OURS, MIXED = ["tidelog", "tidelog", "tidelog"], ["tidelog", "kafka", "tidelog"]
CASES = [
    pytest.param(python_copier, OURS, "3.9.1", id="librdkafka"),
    pytest.param(
        *(java_copier, MIXED, "3.9.1"),
        id="java-and-kafka",
        marks=pytest.mark.thorough("Java's copier: test_exactly_once; brokers of both kinds that die: test_cluster_soak"),
    ),
]
WITH_AN_EPOCH_EACH = [
    pytest.param(partial(java_copier, jars="4.2.0"), kinds, "4.2.0", id=f"an-epoch-each-{len(set(kinds))}")
    for kinds in (OURS, MIXED)
]
"""`transaction.version` 2 (KIP-890), which clusters of Kafka 4 have."""


@pytest.mark.parametrize(("copier", "kinds", "release"), CASES + WITH_AN_EPOCH_EACH if IS_SOAK else CASES)
def test_each_record_is_copied_once(tmp_path: Path, copier: Callable[[Path], Launch], kinds: list[str], release: str) -> None:
    launch = copier(tmp_path)
    with (
        coordinators(tmp_path, kinds, release) as broker,
        Copying(broker, launch, partitions=3, records=1500, seed=5, replicas=3) as copying,
    ):
        copying.run(["broker_dies", "broker_dies", "broker_restarts"])
    assert copying.counts["committed"] > 0
    assert len(broker.killed) == 3 and len(set(broker.killed)) == 2
