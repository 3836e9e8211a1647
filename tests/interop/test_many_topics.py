"""A broker of ours in clusters of many topics and partitions: it leads all of them, also after a kill, and clients go on.

Kafka's brokers refuse connections until they serve, and ours do: an admin client that met a broker which is still loading, or
which sees no broker in its own metadata yet, waits for minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.gate import first_of
from tests.kafka.clients import metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeepers import ZookeeperCluster
from tests.patience import PATIENCE_S

OURS = 2
A_REQUEST_TOPICS = 500


def create(admin: AdminClient, names: list[str], partitions: int) -> None:
    for at in range(0, len(names), A_REQUEST_TOPICS):
        some = names[at : at + A_REQUEST_TOPICS]
        topics = [NewTopic(name, partitions, replica_assignment=[[OURS]] * partitions) for name in some]
        for created in admin.create_topics(topics, request_timeout=PATIENCE_S).values():
            created.result(PATIENCE_S)


def wait_for_leaders(admin: AdminClient, names: list[str], partitions: int) -> None:
    def are_led() -> bool:
        topics = metadata(admin).topics
        return all(
            name in topics and sum(one.leader == OURS for one in topics[name].partitions.values()) == partitions for name in names
        )

    wait_until(are_led, f"the leaders of {len(names)} topics", PATIENCE_S)


def check(admin: AdminClient, member: TidelogMember, topics: int, partitions: int) -> None:
    names = [f"topic-{number:05}" for number in range(topics)]
    create(admin, names, partitions)
    wait_for_leaders(admin, names, partitions)
    wait_until(lambda: len(list(member.data.glob("topic-*"))) == topics * partitions, "all logs", PATIENCE_S)
    member.kill()
    member.start()
    assert f"{topics * partitions} partitions loaded in" in member.said()
    wait_for_leaders(admin, names, partitions)
    for deleted in admin.delete_topics(names[:10], request_timeout=PATIENCE_S).values():
        deleted.result(PATIENCE_S)


@pytest.mark.parametrize("topics", first_of(300, 10_000, why="more topics"))
def test_topics_under_kraft(topics: int, tmp_path: Path) -> None:
    with KafkaCluster(tmp_path, heap_mb=512) as cluster:
        member = TidelogMember(cluster, OURS)
        member.start()
        try:
            check(AdminClient({"bootstrap.servers": member.bootstrap, "log_level": 0}), member, topics, 1)
        finally:
            member.kill()


@pytest.mark.thorough("many partitions: test_zookeeper_member has few")
def test_5_000_partitions_under_zookeeper(tmp_path: Path) -> None:
    with ZookeeperCluster(tmp_path, heap_mb=512) as cluster:
        kafka = cluster.broker(1)
        member = TidelogMember(cluster, OURS)
        member.start()
        try:
            check(AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}), member, 50, 100)
        finally:
            member.kill()
