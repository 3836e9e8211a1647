"""Consumer groups of the new protocol in a cluster whose coordinators are killed: Tidelog's brokers under Kafka's controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from demo.cluster_nodes import brokers

from tests.interop.test_cluster_coordinators import OURS, PARTITIONS, PROPERTIES, Coordinators
from tests.kafka import numbered_rows
from tests.kafka.clients import create_topics
from tests.kafka.clusters import KafkaCluster
from tests.kafka.group_members import LibrdkafkaMember, wait_until_settled
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.groups.offsets_topic import java_hash
from tidelog.model import OFFSETS_TOPIC

GROUP = TOPIC = "moving"
NEW: dict[str, Any] = {"protocol": "consumer", "assignors": ["uniform"]}
MORE = {"group.coordinator.rebalance.protocols": "classic,consumer"}


class Killed(Coordinators):
    """Those whose broker that dies is always the group's coordinator."""

    def _take_away(self) -> Any:
        leader = self._leaders(OFFSETS_TOPIC)[abs(java_hash(GROUP)) % PARTITIONS]
        self._away = self._nodes[leader]
        return self._away

    def start(self) -> None:
        """Have it come back, once another one coordinates."""
        assert self._away is not None
        away = self._away.node_id
        wait_until(lambda: away not in self._leaders(OFFSETS_TOPIC), "another coordinator", PATIENCE_S)
        self._away.start()


@pytest.mark.parametrize(
    "release",
    ["3.9.1", pytest.param("4.2.0", marks=pytest.mark.thorough("3.9.1's controller; what differs is in test_kraft_member"))],
)
def test_a_group_goes_on_with_another_coordinator(tmp_path: Path, release: str) -> None:
    """Members keep their partitions while their coordinator dies: no row is lost or read twice, and epochs do not go back."""
    with (
        KafkaCluster(tmp_path / "cluster", release=release, properties=PROPERTIES | MORE) as cluster,
        brokers(cluster, OURS) as nodes,
    ):
        broker = Killed(nodes)
        create_topics(broker.bootstrap, {TOPIC: {}}, 4, replicas=3)
        places = numbered_rows.places(TOPIC, partitions=4)
        with (
            LibrdkafkaMember(broker.bootstrap, GROUP, [TOPIC], **NEW) as one,
            LibrdkafkaMember(broker.bootstrap, GROUP, [TOPIC], **NEW) as two,
        ):
            numbered_rows.fill(broker, TOPIC, 2, partitions=4)
            wait_until_settled([one, two], places, PATIENCE_S)
            numbered_rows.check_once([one, two], TOPIC, 2, partitions=4)
            had = [set(one.assigned), set(two.assigned)]
            broker.kill()
            broker.start()

            def is_described() -> bool:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
                found = admin.describe_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
                return found.state.name == "STABLE" and len(found.members) == 2

            wait_until(is_described, "the next coordinator to have the group", PATIENCE_S)
            numbered_rows.fill(broker, TOPIC, 2, start=2, partitions=4)
            numbered_rows.check_once([one, two], TOPIC, 4, partitions=4)
            assert [set(one.assigned), set(two.assigned)] == had, "nothing moves with the coordinator"
