"""A cluster of Apache Kafka 3.9.1 whose controllers and brokers speak SASL_SSL to each other: ours joins, follows, leads."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import tidelog
from tests.certificates import PASSWORD, Authority
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.secured_nodes import LOGIN, inside_properties, two_listeners
from tests.patience import PATIENCE_S

SESSION_MS = 3_000


def secured_properties(authority: Authority) -> dict[str, str]:
    """What all nodes have in common."""
    return inside_properties(authority, SESSION_MS) | {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": LOGIN,
    }


class SecuredCluster(KafkaCluster):
    """Brokers have two listeners."""

    def member_properties(self, node_id: int, port: int, data: Path) -> dict[str, str]:
        return super().member_properties(node_id, port, data) | two_listeners(port)


def test_joins_follows_and_leads(tmp_path: Path) -> None:
    """Sessions end every three seconds, and are renewed. At last ours is alone, and leads."""
    authority = Authority(tmp_path / "tls")
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    with SecuredCluster(tmp_path, properties=secured_properties(authority)) as kafka:
        theirs = kafka.broker(1)
        ours = TidelogMember(kafka, 2)
        try:
            ours.start()
            everyone = f"{theirs.bootstrap},{ours.bootstrap}"
            admin = AdminClient({"bootstrap.servers": everyone, "log_level": 0})
            topic = NewTopic("orders", 2, replica_assignment=[[1, 2], [2, 1]])
            make_topics(everyone, [topic])

            def partitions() -> list[tuple[int, list[int]]]:
                found = metadata(admin, "orders").topics["orders"].partitions
                return [(one.leader, sorted(one.isrs)) for _, one in sorted(found.items())]

            expected: dict[int, list[bytes]] = {0: [], 1: []}

            def produce(text: str) -> None:
                producer = Producer({"bootstrap.servers": everyone, "acks": "all", "log_level": 0})
                for number in range(200):
                    for partition, values in expected.items():
                        value = f"{text}-{number}".encode() * 500
                        producer.produce("orders", value, partition=partition)
                        values.append(value)
                assert producer.flush(PATIENCE_S) == 0

            wait_until(lambda: partitions() == [(1, [1, 2]), (2, [1, 2])], "both in sync", PATIENCE_S)
            produce("both")
            theirs.stop()
            wait_until(lambda: [leader for leader, _ in partitions()] == [2, 2], "ours to lead", PATIENCE_S)
            produce("ours")
            theirs.start()
            wait_until(lambda: {tuple(isr) for _, isr in partitions()} == {(1, 2)}, "both in sync again", PATIENCE_S)
            produce("both again")
            with tidelog.connect(theirs.bootstrap) as client:
                found = list(client.read("orders"))
            for partition, values in expected.items():
                assert [one.value for one in found if one.partition == partition] == values
            assert ours.stop() == 0
            assert PASSWORD not in ours.said()
        finally:
            ours.kill()
