"""Who may do what, by Kafka's judgement: its StandardAuthorizer, its kafka-acls, and a Kafka that is started on our folder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.kafka import Kafka391
from tests.kafka.clusters import KafkaCluster
from tests.kafka.jars import classpath
from tests.kafka.java import free_port, run_java, wait_until
from tests.kafka.java_tools import run_tool
from tests.kafka.members import TidelogMember
from tests.patience import PATIENCE_S
from tidelog.broker.broker import Broker
from tidelog.broker.settings.authorizer_properties import STANDARD_AUTHORIZER
from tidelog.security.acl import Acl, Operation, PatternType, Permission
from tidelog.security.acl import ResourceType as Kind
from tidelog.security.principal import Principal
from tidelog.security.standard_authorizer import StandardAuthorizer

JUDGE = Path(__file__).parent.parent / "kafka" / "java_sources" / "AuthorizerJudge.java"
RELEASE = "3.9.1"
DECISIONS = 10_000
ENTRIES = 12
PASSWORD = "made-for-this-test"
CLUSTER_ID = "AAAAAAAAQQCQAAAAAAAAAg"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
EVERY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)  # fmt: skip


def test_decisions_are_kafkas() -> None:
    """10,000 questions about (principal, host, operation, resource), 2,500 about any resource; entries are random."""
    chance = random.Random(1904)
    names = ["a", "ab", "abc", "b", "*", "kafka-cluster", "orders", "or"]
    principals = [Principal("User", "alice"), Principal("User", "bob"), Principal("Group", "alice"), Principal("User", "root")]
    hosts = ["1.2.3.4", "127.0.0.1", "0:0:0:0:0:0:0:1"]
    kinds = [Kind.TOPIC, Kind.GROUP, Kind.CLUSTER, Kind.TRANSACTIONAL_ID]
    operations = list(Operation)[3:13]
    asked, said, ours = [], 0, []
    while said < DECISIONS:
        default = chance.random() < 0.3
        authorizer = StandardAuthorizer(["User:root"], allow_everyone_if_no_acl_found=default)
        asked.append(f"new\tUser:root\t{str(default).lower()}")
        for number in range(chance.randrange(ENTRIES)):
            acl = Acl(
                chance.choice(kinds[: 1 + chance.randrange(4)]),
                chance.choice(names),
                chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                str(chance.choice([*principals, "User:*", "User:*"])),
                chance.choice([*hosts, "*", "*", "*"]),
                chance.choice([*operations, Operation.ALL]),
                chance.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
            )
            if authorizer.has(acl):
                continue  # Kafka's controllers make no entry twice, and its authorizer fails at one.
            authorizer.add(number, acl)
            asked.append("acl\t" + "\t".join(str(int(part) if isinstance(part, int) else part) for part in acl))
        for _ in range(20):
            principal, host, operation = chance.choice(principals), chance.choice(hosts), chance.choice(operations)
            kind, name = chance.choice(kinds[: 1 + chance.randrange(4)]), chance.choice(names[:4] + names[5:])
            asked.append(f"may\t{principal.kind}\t{principal.name}\t{host}\t{int(operation)}\t{int(kind)}\t{name}")
            ours.append(authorizer.decide(principal, host, operation, kind, name).is_allowed)
            said += 1
            if said % 4 == 0:
                asked.append(f"any\t{principal.kind}\t{principal.name}\t{host}\t{int(operation)}\t{int(kind)}")
                ours.append(authorizer.may_any(principal, host, operation, kind))
    printed = run_java(classpath(RELEASE), str(JUDGE), [], stdin="\n".join(asked) + "\n")
    theirs = [line == "true" for line in printed.splitlines() if line in ("true", "false")]
    questions = [line for line in asked if line[:3] in ("may", "any")]
    assert len(theirs) == len(ours) == len(questions), printed[-2000:]
    assert [(q, k, o) for q, k, o in zip(questions, theirs, ours, strict=True) if k != o] == []
    assert 200 < sum(ours) < len(ours) - 200


class Served(NamedTuple):
    """A broker of ours with an authorizer, and how its users get in."""

    broker: Broker
    folder: Path

    def config(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }

    def acls(self, *arguments: str) -> str:
        path = self.folder / "admin.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} required username="admin" password="{PASSWORD}";\n'
        )
        where = ["--bootstrap-server", self.broker.bootstrap_servers, "--command-config", str(path)]
        return run_tool(RELEASE, "kafka.admin.AclCommand", [*where, *arguments])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    properties = {
        "listeners": "SASL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} required user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    ids: dict[str, Any] = {"cluster.id": CLUSTER_ID, "node.id": 1}  # A Kafka is to go on with the folder.
    with Broker(tmp_path / "kafka" / "data", **properties, **ids) as broker:
        yield Served(broker, tmp_path)


def sent(served: Served, topic: str) -> confluent_kafka.KafkaError | None:
    """Return what a producer of alice's is told of a record."""
    told = []
    producer = confluent_kafka.Producer(served.config("alice"))
    producer.produce(topic, b"x", on_delivery=lambda error, message: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


def read(served: Served, topic: str, group: str) -> confluent_kafka.KafkaError | bytes | None:
    """Return the first value, or error, that a consumer of alice's gets."""
    consumer = confluent_kafka.Consumer(served.config("alice") | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        return message.error() or message.value()
    finally:
        consumer.close()


def test_kafka_acls(served: Served) -> None:
    """Entries made, listed and removed by Kafka's tool; what a producer and a consumer see meanwhile is what Kafka shows them."""
    admin = AdminClient(served.config("admin"))
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
    error = sent(served, "orders")
    assert error is not None and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    made = served.acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "operation=WRITE, permissionType=ALLOW" in made
    assert sent(served, "orders") is None
    error = read(served, "orders", "readers")
    assert isinstance(error, confluent_kafka.KafkaError) and error.code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    served.acls(
        "--add",
        "--allow-principal",
        "User:alice",
        "--operation",
        "Read",
        "--group",
        "read",
        "--resource-pattern-type",
        "prefixed",
    )
    error = read(served, "orders", "readers")
    assert isinstance(error, confluent_kafka.KafkaError) and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    served.acls("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert read(served, "orders", "readers") == b"x"
    listed = served.acls("--list", "--principal", "User:alice")
    assert "resourceType=GROUP, name=read, patternType=PREFIXED" in listed and listed.count("permissionType=ALLOW") == 5
    served.acls("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    error = sent(served, "orders")
    assert error is not None and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(served, "orders", "readers-too") == b"x"


def test_kafka_finds_them_on_our_folder(served: Served) -> None:
    """A Kafka that is started on the folder has our entries, and keeps to them; those that it makes are ours after it."""
    admin = AdminClient(served.config("admin"))
    wanted = [
        AclBinding(
            ResourceType.TOPIC,
            f"t{number}",
            ResourcePatternType.PREFIXED if number % 2 else ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.DENY if number % 3 else AclPermissionType.ALLOW,
        )
        for number in range(20)
    ]
    for made in admin.create_acls(wanted).values():
        made.result(PATIENCE_S)
    seventh = AclBindingFilter(
        ResourceType.TOPIC, "t7", ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    (gone,) = admin.delete_acls([seventh]).values()
    assert len(gone.result(PATIENCE_S)) == 1
    left = set(wanted) - {wanted[7]}
    assert set(admin.describe_acls(EVERY).result(PATIENCE_S)) == left
    served.broker.stop()
    kafka = Kafka391(
        served.folder / "kafka",
        {
            "metadata.log.dir": str(served.folder / "kafka" / "data"),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        },
    )
    kafka.cluster_id = CLUSTER_ID
    more = AclBinding(
        ResourceType.GROUP, "g", ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    with kafka:
        assert set(kafka.admin.describe_acls(EVERY).result(PATIENCE_S)) == left
        for made in kafka.admin.create_acls([more]).values():
            made.result(PATIENCE_S)
    served.broker.start()
    admin = AdminClient(served.config("admin"))
    assert set(admin.describe_acls(EVERY).result(PATIENCE_S)) == left | {more}


def test_a_member_of_a_cluster(tmp_path: Path) -> None:
    """Entries come from Kafka's controllers, and what those answer they judge by who has asked our broker."""
    guard = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"}
    with KafkaCluster(tmp_path / "cluster", properties=guard) as cluster:
        member = TidelogMember(cluster, 1)
        port = free_port()
        member.properties |= {
            "listeners": f"{member.properties['listeners']},CLIENTS://127.0.0.1:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
        }
        member.start()
        try:
            config = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            login: dict[str, Any] = config | {"sasl.password": PASSWORD, "log_level": 0}
            admin = AdminClient(login | {"sasl.username": "admin"})
            alice = AdminClient(login | {"sasl.username": "alice"})
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
            with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                alice.create_topics([NewTopic("mine", 1, 1)])["mine"].result(PATIENCE_S)
            assert alice.list_topics(timeout=PATIENCE_S).topics == {}
            entries = [
                AclBinding(
                    ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:alice", "*", what, AclPermissionType.ALLOW
                )
                for name, what in (("orders", AclOperation.DESCRIBE), ("mine", AclOperation.CREATE))
            ]
            for made in admin.create_acls(entries).values():
                made.result(PATIENCE_S)
            with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
                next(iter(alice.create_acls(entries[:1]).values())).result(PATIENCE_S)
            wait_until(lambda: set(alice.list_topics(timeout=PATIENCE_S).topics) == {"orders"}, "the entries at the member")
            alice.create_topics([NewTopic("mine", 1, 1)])["mine"].result(PATIENCE_S)
            for gone in admin.delete_acls([EVERY]).values():
                assert set(gone.result(PATIENCE_S)) == set(entries)
            wait_until(lambda: alice.list_topics(timeout=PATIENCE_S).topics == {}, "the entries to be gone")
        finally:
            member.stop()
