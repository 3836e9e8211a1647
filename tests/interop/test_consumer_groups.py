"""Real clients in consumer groups of the new protocol (KIP-848): of Kafka 3.9.1, 4.2 and 4.4, and librdkafka.

`TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Kafka instead.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient

from tests.broker.raw import RawClient
from tests.examples import IS_SOAK
from tests.interop.consumer_history import History, WireGroup
from tests.interop.mixed_history import MixedGroup, MixedHistory
from tests.interop.peers import Peer, served
from tests.interop.test_modern_groups import GROUPS
from tests.kafka import Kafka391, Kafka420, numbered_rows
from tests.kafka.clients import create_topics
from tests.kafka.group_members import LibrdkafkaMember, Member, Place, wait_until_settled
from tests.kafka.jars import JARS, made_once
from tests.kafka.java import wait_until
from tests.kafka.java_members import JavaClients
from tests.kafka.java_tools import run_tool
from tests.patience import PATIENCE_S
from tidelog.wire.messages.metadata import MetadataRequest

PARTITIONS = 6
SIZES = {"a": 5, "b": 3, "c": 1}
"""The topics of histories, with their numbers of partitions."""
HISTORIES = 100 if IS_SOAK else 8
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.assignors": ",".join(
        f"org.apache.kafka.coordinator.group.assignor.{one}Assignor" for one in ("Range", "Uniform")
    ),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}
FRANZ_GO = "github.com/twmb/franz-go@v1.22.3"
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


@pytest.mark.thorough("test_the_same_answers_as_kafka has mixed groups, without clients; this waits for many rebalances")
def test_a_group_changes_its_protocol(peer: Peer, java: JavaClients) -> None:
    """Clients go over to the new protocol one by one, and back, while they read. No record is lost, and none is read again once
    it is committed. Kafka 4.2 does no more: a classic member whose generation ends with the change of the
    group's protocol can commit nothing, and in a rebalance Java's client does not even try.
    """
    topic = group = "migrated"
    peer.create_topics({topic: {}}, PARTITIONS)
    classic: dict[str, Any] = {"assignors": ["cooperative-sticky"]}
    steps = (
        lambda: java.member("3.9.1", peer.bootstrap, group, [topic], **classic),
        lambda: LibrdkafkaMember(peer.bootstrap, group, [topic], **classic),
        lambda: LibrdkafkaMember(peer.bootstrap, group, [topic], **NEW),
        lambda: java.member("4.4.0", peer.bootstrap, group, [topic], **NEW),
        lambda: LibrdkafkaMember(peer.bootstrap, group, [topic], **classic),
        lambda: java.member("4.4.0", peer.bootstrap, group, [topic], **classic),
    )
    kinds = []
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    with ExitStack() as opened:
        members: list[Member] = []
        for number, made in enumerate(steps):
            before = [(member, len(member.rows)) for member in members]
            members.append(opened.enter_context(made()))
            fill(peer, topic, 1, start=2 * number)
            if number > 1:
                members[number - 2].close()
            fill(peer, topic, 1, start=2 * number + 1)
            wait_until_settled(members[-2:], places(topic), PATIENCE_S)
            wait_until(partial(have_committed, members[-2:], peer, group, topic, 2 * len(members)), "commits", PATIENCE_S)
            read = {(row.place, row.offset) for member in members for row in member.rows}
            assert len(read) == PARTITIONS * 2 * len(members)
            again = [row for member, count in before for row in member.rows[count:] if row.offset < 2 * number]
            again += [row for row in members[-1].rows if row.offset < 2 * number]
            assert not again
            listed = admin.list_consumer_groups().result(PATIENCE_S).valid
            kinds += [one.type.name for one in listed if one.group_id == group]
    assert kinds == ["CLASSIC", "CLASSIC", "CONSUMER", "CONSUMER", "CONSUMER", "CLASSIC"]


def have_committed(members: list[Member], peer: Peer, group: str, topic: str, rows: int) -> bool:
    """Whether these members, which commit what they have read, have read and committed everything. In a rebalance they cannot."""
    with suppress(KafkaException):
        for member in members:
            member.commit()
        return committed(peer.bootstrap, group) == dict.fromkeys(places(topic), rows)
    return False


@pytest.mark.thorough("test_clients_share_a_group has three other clients; franz-go's own tests take minutes")
@pytest.mark.skipif(shutil.which("go") is None, reason="no Go on the PATH")
def test_franz_gos_own_tests(peer: Peer) -> None:
    """Its groups of both protocols: rows go through three topics, while members come and go; patterns."""

    def build(path: Path) -> None:
        with TemporaryDirectory(prefix="franz-go-") as folder:
            asked = ["go", "mod", "download", "-json", FRANZ_GO]
            fetched = subprocess.run(asked, cwd=folder, check=True, capture_output=True)
        module = json.loads(fetched.stdout)["Dir"]
        subprocess.run(["go", "test", "-c", "-o", path, "./pkg/kgo"], cwd=module, check=True, capture_output=True)

    program = made_once(JARS / FRANZ_GO.replace("/", "-"), build)
    # Its tests of one protocol alone would hang: they count on all of them to run.
    wanted = ["-test.v", "-test.run", "^(TestGroupETL|TestGroupSimple|Test848RegexBrokerResolves)$"]
    settings = {"KGO_SEEDS": peer.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000"}
    ran = subprocess.run(
        [program, *wanted], env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert not ran.returncode, ran.stdout[-10_000:]
    assert "--- PASS: TestGroupETL/sticky/848/static" in ran.stdout


def topic_ids(bootstrap: str) -> dict[str, uuid.UUID]:
    """Create the topics of a history, if they are missing, and return their ids."""
    with RawClient(address(bootstrap)) as client:
        found = {one.name: one.topic_id for one in client.ask(MetadataRequest(topics=None), 12).topics}
        if not found.keys() >= SIZES.keys():
            for name, partitions in SIZES.items():
                create_topics(bootstrap, {name: {}}, partitions)
            return topic_ids(bootstrap)
    return {name: found[name] for name in SIZES}


def address(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.rsplit(":", 1)
    return host, int(port)


def test_the_same_answers_as_kafka(peer: Peer, tmp_path: Path) -> None:
    """The same histories of joins, heartbeats, lost answers, leaves and subscriptions, step by step, with Kafka 4.2. In half of
    them members of the classic protocol are in the group, which changes to that protocol and back.
    """
    with Kafka420(tmp_path, PROPERTIES | {"offsets.topic.replication.factor": "1"}) as kafka:
        brokers = {broker.bootstrap: topic_ids(broker.bootstrap) for broker in (kafka, peer)}
        for seed in range(HISTORIES):
            told = []
            for bootstrap, ids in brokers.items():
                with WireGroup(address(bootstrap), f"history-{seed}", ids) as group:
                    told.append(History(seed, tuple(SIZES)).run(group, 60))
            theirs, ours = told
            assert ours == theirs, f"seed {seed}"
            told = []
            for bootstrap, ids in brokers.items():
                with MixedGroup(address(bootstrap), f"mixed-{seed}", ids) as group:
                    told.append(MixedHistory(seed, SIZES).run(group, 80))
            theirs, ours = told
            assert ours == theirs, f"seed {seed}, with classic members"


@pytest.mark.thorough(
    "test_the_same_answers_as_kafka has the same state, test_kafkas_records the same bytes; this starts six brokers"
)
@pytest.mark.parametrize("kind", [Kafka420, Kafka391])
def test_a_folder_goes_to_kafka_and_back(kind: type[Kafka391], tmp_path: Path) -> None:
    """A group that began on Kafka goes on here, with its epochs and assignments, and then there again."""
    properties = PROPERTIES | {"offsets.topic.replication.factor": "1"}
    history = History(3, tuple(SIZES))
    before: tuple[object, ...] | None = None
    for serve in (kind, served, kind):
        with serve(tmp_path, properties) as broker:
            ids = topic_ids(broker.bootstrap)
            with WireGroup(address(broker.bootstrap), "group", ids, version=0) as group:
                now = group.described()
                assert before is None or now == before
                told = history.run(group, 40)
                assert before is None or any(len(one) == 5 and one[2] == "NONE" for one in told)
                before = group.described()


@pytest.mark.thorough("test_clients_share_a_group has the same clients; this adds Kafka's tools, which take seconds each")
@pytest.mark.parametrize("release", ["4.2.0", "3.9.1"])
def test_kafkas_tool(peer: Peer, release: str) -> None:
    topic = group = f"tool-{release}"
    peer.create_topics({topic: {}}, PARTITIONS)
    fill(peer, topic, 2)

    def tool(*arguments: str) -> str:
        return run_tool(release, GROUPS, ["--bootstrap-server", peer.bootstrap, *arguments])

    with LibrdkafkaMember(peer.bootstrap, group, [topic], **NEW) as member:
        wait_until_settled([member], places(topic), PATIENCE_S)
        check_once([member], topic, 2)
        member.commit()
        rows = [line.split() for line in tool("--describe", "--group", group).splitlines() if line.startswith(group)]
        assert sorted((row[2], row[3], row[5]) for row in rows) == [(str(one), "2", "0") for one in range(PARTITIONS)]
        members = tool("--describe", "--group", group, "--members", "--verbose")
        assert "0,1,2,3,4,5" in members
        assert "Stable" in tool("--describe", "--group", group, "--state")
        assert "Consumer" in tool("--list", "--type") and "Stable" in tool("--list", "--state")
    assert "deletion of requested consumer groups" in tool("--delete", "--group", group).lower()
