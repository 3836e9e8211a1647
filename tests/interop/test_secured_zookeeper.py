"""A ZooKeeper cluster of Apache Kafka 3.9.1 whose brokers speak SASL_SSL to each other: ours joins, follows, leads.

The controller asks it by that listener, and it asks the controller: for leaders at its end, and for in-sync replicas.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.certificates import Authority
from tests.examples import IS_SOAK
from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.secured_nodes import inside_properties, two_listeners
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.migration import judge
from tests.patience import PATIENCE_S

KAFKAS, OURS = 1, 2
TOPIC = "orders"


def secured_properties(authority: Authority) -> dict[str, str]:
    """What all brokers have in common."""
    names = {"listener.security.protocol.map": "INSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT"}
    return inside_properties(authority, session_ms=3000) | names


class SecuredCluster(ZookeeperCluster):
    """Brokers have two listeners."""

    def member_properties(self, node_id: int, port: int, data: Path) -> dict[str, str]:
        return super().member_properties(node_id, port, data) | two_listeners(port)


PROTOCOLS = ["2.4", "3.9"]


@pytest.mark.parametrize("protocol", PROTOCOLS if IS_SOAK else PROTOCOLS[:1])
def test_joins_follows_and_leads(tmp_path: Path, protocol: str) -> None:
    """Sessions of SASL end every three seconds, and are renewed."""
    authority = Authority(tmp_path / "tls")
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    properties = secured_properties(authority) | {"inter.broker.protocol.version": protocol, "log.retention.ms": "-1"}
    with SecuredCluster(tmp_path, properties=properties) as cluster:
        kafka = cluster.broker(KAFKAS)
        ours = TidelogMember(cluster, OURS)  # type: ignore[arg-type]
        try:
            ours.start()
            with cluster.client() as client:
                admin = ZookeeperAdmin(client)
                admin.create(TOPIC, [[KAFKAS, OURS], [OURS, KAFKAS]])
                for partition, leader in enumerate((KAFKAS, OURS)):
                    admin.wait_for(TOPIC, [KAFKAS, OURS], leader, partition)
                sent: dict[int, list[bytes]] = {0: [], 1: []}

                def produce(text: str) -> None:
                    producer = Producer({"bootstrap.servers": f"{kafka.bootstrap},{ours.bootstrap}", "acks": "all"})
                    for number in range(200):
                        for partition, values in sent.items():
                            values.append(f"{text} {number}".encode())
                            producer.produce(TOPIC, values[-1], partition=partition)
                    assert producer.flush(PATIENCE_S) == 0

                produce("both")
                # In order: the controller is asked to move the leaders.
                assert ours.stop() == 0
                admin.wait_for(TOPIC, [KAFKAS], KAFKAS, 1)
                produce("without ours")
                ours.start()
                for partition in sent:
                    admin.wait_for(TOPIC, [KAFKAS, OURS], partition=partition)
                    admin.move(TOPIC, [OURS, KAFKAS], partition)
                produce("ours leads")
                for partition, values in sent.items():
                    read = old_wire.read_all(lambda: ours.port, TOPIC, version=4, partition=partition)
                    assert [record.value for record in read] == values
                    wait_until(
                        lambda partition=partition: (  # type: ignore[misc]
                            judge.bytes_of(kafka.data, TOPIC, partition) == judge.bytes_of(ours.data, TOPIC, partition)
                        ),
                        f"equal replicas of {TOPIC}-{partition}",
                        PATIENCE_S,
                    )
        finally:
            ours.kill()
