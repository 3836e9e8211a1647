"""Real clients in consumer groups of the new protocol (KIP-848): of Kafka 3.9.1, 4.2 and 4.4, and librdkafka.

`TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Kafka instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.interop.peers import Peer, served
from tests.interop.test_modern_groups import GROUPS
from tests.kafka import numbered_rows
from tests.kafka.group_members import LibrdkafkaMember, Member, Place, wait_until_settled
from tests.kafka.jars import classpath
from tests.kafka.java import run_java, wait_until
from tests.kafka.java_members import JavaClients
from tests.patience import PATIENCE_S

PARTITIONS = 6
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "45000",
    "offsets.topic.num.partitions": "3",
}
NEW: dict[str, Any] = {"protocol": "consumer", "assignors": ["uniform"]}

fill = partial(numbered_rows.fill, partitions=PARTITIONS)
places = partial(numbered_rows.places, partitions=PARTITIONS)
check_once = partial(numbered_rows.check_once, partitions=PARTITIONS)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("consumer-groups"), PROPERTIES) as peer:
        yield peer


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with JavaClients() as clients:
        yield clients


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {Place(each.topic, each.partition): each.offset for each in future.result(PATIENCE_S).topic_partitions}


def test_clients_share_a_group(peer: Peer, java: JavaClients) -> None:
    """Java's two generations of this client and librdkafka, one by one; then they go in that order."""
    topic = group = "shared"
    peer.create_topics({topic: {}}, PARTITIONS)
    rows = 0
    with ExitStack() as opened:
        members: list[Member] = []
        for made in (
            lambda: java.member("3.9.1", peer.bootstrap, group, [topic], **NEW),
            lambda: LibrdkafkaMember(peer.bootstrap, group, [topic], **NEW),
            lambda: java.member("4.4.0", peer.bootstrap, group, [topic], **NEW),
        ):
            members.append(opened.enter_context(made()))
            fill(peer, topic, 2, start=rows)
            rows += 2
            wait_until_settled(members, places(topic), PATIENCE_S)
        wait_until(lambda: [len(member.assigned) for member in members] == [2, 2, 2], "equal shares", PATIENCE_S)
        check_once(members, topic, rows)
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        assert described.type is ConsumerGroupType.CONSUMER
        assert sorted(len(one.assignment.topic_partitions) for one in described.members) == [2, 2, 2]
        for gone in range(2):
            members[gone].close()
            fill(peer, topic, 1, start=rows)
            rows += 1
            wait_until_settled(members[gone + 1 :], places(topic), PATIENCE_S)
        check_once(members, topic, rows)
        members[-1].close()
    assert committed(peer.bootstrap, group) == dict.fromkeys(places(topic), rows)


@pytest.mark.thorough("test_clients_share_a_group has the same clients; this adds Kafka's tools, which take seconds each")
@pytest.mark.parametrize("release", ["4.2.0", "3.9.1"])
def test_kafkas_tool(peer: Peer, release: str) -> None:
    topic = group = f"tool-{release}"
    peer.create_topics({topic: {}}, PARTITIONS)
    fill(peer, topic, 2)

    def tool(*arguments: str) -> str:
        return run_java(classpath(release), GROUPS, ["--bootstrap-server", peer.bootstrap, *arguments])

    with LibrdkafkaMember(peer.bootstrap, group, [topic], **NEW) as member:
        wait_until_settled([member], places(topic), PATIENCE_S)
        check_once([member], topic, 2)
        member.commit()
        rows = [line.split() for line in tool("--describe", "--group", group).splitlines() if line.startswith(group)]
        assert sorted((row[2], row[3], row[5]) for row in rows) == [(str(one), "2", "0") for one in range(PARTITIONS)]
        members = tool("--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}(0,1,2,3,4,5)" in members or f"{topic}:0,1,2,3,4,5" in members
        assert "Stable" in tool("--describe", "--group", group, "--state")
        assert "Consumer" in tool("--list", "--type") and "Stable" in tool("--list", "--state")
    assert "deletion of requested consumer groups" in tool("--delete", "--group", group).lower()
