"""Transactions in a cluster of ZooKeeper at protocols from 0.11 on: their coordinator is ours, then Kafka's, then ours.

What one of them has written of transactions the other one goes on with, and fences the same producers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.examples import IS_SOAK
from tests.kafka.java import wait_until
from tests.kafka.java_members import JavaClientError, JavaClients
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.migration import judge
from tests.patience import PATIENCE_S
from tidelog.model import TRANSACTIONS_TOPIC

KAFKAS, OURS = 1, 2
TOPIC = "orders"
PROTOCOLS = ["0.11.0", "1.1", "2.0", "2.3"]


@pytest.mark.parametrize("protocol", PROTOCOLS if IS_SOAK else PROTOCOLS[:1])
def test_transactions_move(tmp_path: Path, protocol: str) -> None:
    properties = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol}
    with ZookeeperCluster(tmp_path, release="2.4.1", zookeeper="2.4.1", properties=properties) as cluster:
        kafka = cluster.broker(KAFKAS)
        member = TidelogMember(cluster, OURS)
        try:
            member.start()
            with cluster.client() as client, JavaClients() as clients:
                admin = ZookeeperAdmin(client)
                admin.create(TRANSACTIONS_TOPIC, [[OURS, KAFKAS], [OURS, KAFKAS]], **{"cleanup.policy": "compact"})
                admin.create(TOPIC, [[KAFKAS, OURS], [OURS, KAFKAS]])
                for partition in (0, 1):
                    admin.wait_for(TRANSACTIONS_TOPIC, [KAFKAS, OURS], OURS, partition)
                    admin.wait_for(TOPIC, [KAFKAS, OURS], (KAFKAS, OURS)[partition], partition)
                bootstrap = f"{kafka.bootstrap},{member.bootstrap}"
                former = clients.producer("2.4.1", bootstrap, "id")
                former.init()
                committed: list[list[bytes]] = [[], []]
                for coordinator in (OURS, KAFKAS, OURS):
                    for partition in (0, 1):
                        admin.move(TRANSACTIONS_TOPIC, [coordinator, KAFKAS + OURS - coordinator], partition)
                    producer = clients.producer("2.4.1", bootstrap, "id")
                    producer.init()
                    with pytest.raises(JavaClientError, match="Fenced"):
                        former.begin()
                        former.send(TOPIC, 0, "of a former one")
                        former.commit()
                    former.close()
                    for end in (producer.commit, producer.abort, producer.commit):
                        producer.begin()
                        for partition, values in enumerate(committed):
                            value = f"{coordinator} {len(values)} {end.__name__}"
                            producer.send(TOPIC, partition, value)
                            if end == producer.commit:
                                values.append(value.encode())
                        end()
                    former = producer
                former.close()
                for partition in (0, 1):
                    assert read_committed(bootstrap, partition, len(committed[partition])) == committed[partition]
                folders = (kafka.data, member.data)
                for topic in (TOPIC, TRANSACTIONS_TOPIC):
                    for partition in (0, 1):
                        wait_until(
                            lambda topic=topic, partition=partition: (  # type: ignore[misc]
                                judge.bytes_of(folders[0], topic, partition) == judge.bytes_of(folders[1], topic, partition)
                            ),
                            f"equal replicas of {topic}-{partition}",
                            PATIENCE_S,
                        )
        finally:
            member.kill()


def read_committed(bootstrap: str, partition: int, count: int) -> list[bytes]:
    """Return what a consumer of committed records gets up to the end."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "any",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        values: list[bytes] = []

        def is_at_end() -> bool:
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                values.append(message.value())
            return message is not None and message.error() is not None and len(values) >= count

        wait_until(is_at_end, f"{count} records of {TOPIC}-{partition}, and its end", PATIENCE_S)
        return values
    finally:
        consumer.close()
