"""Backups of Apache Kafka 3.9.1 and restores into it, by users with exactly the rights that the docs list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

import tidelog
from tests.cli.conftest import run, run_ok
from tests.kafka.brokers import Kafka391
from tests.kafka.clients import NewRow, commit_offsets, produce, wait_until_decided
from tests.kafka.java import free_port, wait_until
from tests.patience import PATIENCE_S
from tidelog.backup.backup import open_backup
from tidelog.broker.settings.authorizer_properties import STANDARD_AUTHORIZER
from tidelog.records.batch import iter_headers

DOCS = Path(__file__).parents[2] / "docs"
NOON = 1_700_000_000_000
PASSWORD = "made-for-this-test"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KINDS = {
    "Topic": ResourceType.TOPIC,
    "Cluster": ResourceType.BROKER,
    "Group": ResourceType.GROUP,
    "TransactionalId": ResourceType.TRANSACTIONAL_ID,
}
NAMES = {"the restored topics": "again", "the restored groups": "readers"}


class Guarded(NamedTuple):
    """A Kafka with an authorizer, and a second listener for the user `backup`."""

    kafka: Kafka391
    port: int

    def login(self, folder: Path, user: str = "backup") -> Path:
        path = folder / f"{user}.properties"
        login = f'sasl.jaas.config={LOGIN} username="{user}" password="{PASSWORD}";'
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n")
        return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    port, own = free_port(), free_port()
    kafka = Kafka391(tmp_path_factory.mktemp("guarded"))
    kafka.port = own
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{own},CONTROLLER://127.0.0.1:{kafka.controller_port},CLIENTS://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{own},CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{LOGIN} user_backup="{PASSWORD}" user_restore="{PASSWORD}";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    kafka.properties = {**kafka.properties, **listeners}
    with kafka:
        yield Guarded(kafka, port)


def listed_rights(user: str) -> list[AclBinding]:
    """The entries of the table in the user's document."""
    text = (DOCS / f"{user}.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ([^|]+?) \| ([A-Za-z, ]+) \| [^|]+ \|$", text, re.MULTILINE)
    found = [
        AclBinding(
            KINDS[kind],
            NAMES.get(name, name.split(",")[0].strip("`")),
            ResourcePatternType.PREFIXED if "as a prefix" in name else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[_upper(what)],
            AclPermissionType.ALLOW,
        )
        for kind, name, operations in rows
        if kind in KINDS
        for what in operations.split(", ")
    ]
    assert found
    return found


def _upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def fill(kafka: Kafka391) -> None:
    kafka.create_topic("orders", 2, segment_bytes=100_000)
    produce(kafka.bootstrap, "orders", [NewRow(b"k", b"%d" % i * 20, NOON + i) for i in range(3000)], batch_records=50)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", b"txn %d" % number, b"k", partition, timestamp=NOON + 5000 + number)
        producer.commit_transaction(PATIENCE_S) if number % 2 else producer.abort_transaction(PATIENCE_S)
    wait_until_decided(kafka.bootstrap, "orders", 2)
    commit_offsets(kafka.bootstrap, "readers", [TopicPartition("orders", 0, 1234)])


def test_a_backup_by_a_user_with_the_listed_rights(guarded: Guarded, tmp_path: Path) -> None:
    kafka = guarded.kafka
    fill(kafka)
    source, target, config = f"127.0.0.1:{guarded.port}", tmp_path / "backup", guarded.login(tmp_path)
    refused = run("backup", source, target, "--config", config, "--topics", "orders")
    assert refused.exit_code == 1
    assert "no topic 'orders'" in refused.stderr  # Kafka does not show it.

    rights = listed_rights("backup")
    for made in kafka.admin.create_acls(rights).values():
        made.result(PATIENCE_S)

    def is_taken() -> bool:
        """Each of the cluster's parts learns of the entries in its own time."""
        taken = run("backup", source, target, "--config", config)
        if taken.exit_code != 0 or open_backup(target).point().topics < 2:
            return False
        described = open_backup(target).rights(open_backup(target).point())
        return described is not None and not described["not_described"]

    wait_until(is_taken, "a whole backup", PATIENCE_S)
    run_ok("backup", "verify", target)
    point = open_backup(target).point()
    assert point.is_cut_consistent
    described = open_backup(target).rights(point)
    assert described is not None
    assert len(described["acls"]) == len(rights)
    shown = run_ok("backup", "show", target).stdout
    assert shown.count("User:backup") == len(rights)

    # Byte for byte, and by time, as Kafka has it.
    columns = ["partition", "offset", "timestamp", "key", "value"]
    for isolation in ("read_uncommitted", "read_committed"):
        by_broker = tidelog.scan(kafka.bootstrap, "orders", columns=columns, isolation=isolation).read_all()
        stored = tidelog.scan(str(target), "orders", columns=columns, isolation=isolation).read_all()
        assert stored.sort_by([("partition", "ascending"), ("offset", "ascending")]) == by_broker.sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )
    backup = open_backup(target)
    partition = backup.partition(backup.topics(point)["orders"], 0)
    pieces = [
        backup.read(backup.key(partition, piece, ".log"), piece.files[".log"])
        for segment in backup.segments(partition)
        for piece in segment.pieces
    ]
    own = b"".join(one.read_bytes() for one in sorted(kafka.partition_folder("orders").glob("*.log")))
    assert b"".join(pieces) == own
    assert len(list(iter_headers(memoryview(own)))) > 60
    assert run_ok("verify", target).stderr.count("missing") == 0
    found = run_ok("find", target, "orders", "--at", NOON + 1000, "--json").stdout
    assert found == run_ok("find", kafka.bootstrap, "orders", "--at", NOON + 1000, "--json").stdout
    assert "readers" in run_ok("groups", "list", target).stdout

    # What one may no longer read is reported, and stays as it was.
    reading = [one for one in rights if one.operation == AclOperation.READ]
    one = reading[0]
    filters = [
        AclBindingFilter(
            one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
        )
    ]
    for gone in kafka.admin.delete_acls(filters).values():
        assert gone.result(PATIENCE_S)
    produce(kafka.bootstrap, "orders", [NewRow(b"k", b"late", NOON + 9000)])

    def is_refused() -> bool:
        return run("backup", source, target, "--config", config).exit_code == 3

    wait_until(is_refused, "a point that says what is missing", PATIENCE_S)
    last = open_backup(target).point()
    assert any("orders-0" in text and "TOPIC_AUTHORIZATION_FAILED" in text for text in last.incomplete)
    assert not last.is_cut_consistent
    run_ok("backup", "verify", target)
    assert tidelog.scan(str(target), "orders").read_all().num_rows == by_broker.num_rows


def test_a_restore_by_a_user_with_the_listed_rights(guarded: Guarded, tmp_path: Path) -> None:
    kafka = guarded.kafka
    if "orders" not in kafka.admin.list_topics(timeout=PATIENCE_S).topics:
        fill(kafka)
    backup, place, config = tmp_path / "backup", f"127.0.0.1:{guarded.port}", guarded.login(tmp_path, "restore")
    run_ok("backup", kafka.bootstrap, backup, "--topics", "orders")
    restore = ["restore", backup, "--to", place, "--to-config", config, "--rename", "orders=again", "--work", tmp_path / "work"]
    assert run(*restore).exit_code == 1
    rights = listed_rights("restore")
    for made in kafka.admin.create_acls(rights).values():
        made.result(PATIENCE_S)

    def is_restored() -> bool:
        """Each of the cluster's parts learns of the entries in its own time."""
        return run(*restore).exit_code == 0

    wait_until(is_restored, "a whole restore", PATIENCE_S)
    rows = [
        tidelog.scan(kafka.bootstrap, topic, columns=["partition", "timestamp", "key", "value"], isolation="read_committed")
        .read_all()
        .sort_by([("partition", "ascending"), ("timestamp", "ascending"), ("value", "ascending")])
        for topic in ("orders", "again")
    ]
    assert rows[0] == rows[1]
    assert run_ok("groups", "describe", kafka.bootstrap, "readers", "--json").stdout.count('"again"') == 1
