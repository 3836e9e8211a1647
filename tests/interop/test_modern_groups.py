"""Groups of every type that Apache Kafka 4.2 coordinates: what is read of its folder, and asked of it, is what its own tools say.

| group | members |
|---|---|
| new-java, new-static | Java consumers with `group.protocol=consumer`; the second one is static |
| new-pattern | one that subscribes to a pattern |
| new-librdkafka | librdkafka's |
| new-left | one that has left |
| classic, classic-left | of the classic protocol |
| sharing | a share consumer |
| deleted | was there, and was deleted |
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.cli.conftest import run, run_ok
from tests.kafka import Kafka420
from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess, wait_until
from tests.kafka.java_tools import run_tool
from tests.patience import PATIENCE_S

PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "3",
}
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARES = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
NEW = ["--consumer-property", "group.protocol=consumer"]

Row = dict[str, str]


class Kafka(Kafka420):
    """The broker, and its tools."""

    def tool(self, main: str, *arguments: str) -> str:
        return run_tool(self.RELEASE, main, ["--bootstrap-server", self.bootstrap, *arguments])

    def rows(self, main: str, *arguments: str) -> list[Row]:
        """Return the lines of a tool's tables, by their headers; no column of these has spaces, but for the coordinator's."""
        found, header = [], list[str]()
        for line in self.tool(main, *arguments).splitlines():
            words = line.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
            if words[:1] == ["GROUP"]:
                header = words
            elif header and len(words) == len(header):
                found.append(dict(zip(header, words, strict=True)))
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka-4.2")
    with ExitStack() as opened:
        broker = opened.enter_context(Kafka(folder, PROPERTIES))
        broker.create_topic("orders", 4)
        broker.create_topic("arrivals", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(400):
            producer.produce("orders", b"%d" % number, partition=number % 4)
            producer.produce("arrivals", b"%d" % number, partition=number % 2)
        producer.flush()

        def started(main: str, group: str, *arguments: str) -> None:
            arguments = ("--bootstrap-server", broker.bootstrap, "--group", group, *arguments)
            process = JavaProcess(classpath("4.2.0"), main, arguments, output=folder / f"{group}.out", heap_mb=96)
            opened.callback(process.kill)

        def consumer(group: str, protocol: str) -> Consumer:
            """Return a consumer that has committed after 50 records."""
            more = {} if protocol == "classic" else {"group.protocol": protocol}
            config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
            # It is kept in its group without a poll, for as long as the tests take.
            made = Consumer({**config, "enable.auto.commit": False, "max.poll.interval.ms": 3_600_000, **more})
            made.subscribe(["orders"])
            seen = 0

            def has_read() -> bool:
                nonlocal seen
                message = made.poll(1)
                seen += message is not None and message.error() is None
                return seen >= 50

            wait_until(has_read, f"50 records of {group}", PATIENCE_S)
            made.commit(asynchronous=False)
            return made

        started(CONSUMER, "new-java", "--topic", "orders", "--from-beginning", *NEW)
        started(CONSUMER, "new-static", "--topic", "orders", *NEW, "--consumer-property", "group.instance.id=first")
        started(CONSUMER, "new-pattern", "--include", "orders|arriv.*", "--from-beginning", *NEW)
        config = [
            "--alter",
            "--entity-type",
            "groups",
            "--entity-name",
            "sharing",
            "--add-config",
            "share.auto.offset.reset=earliest",
        ]
        broker.tool("kafka.admin.ConfigCommand", *config)
        started(SHARE_CONSUMER, "sharing", "--topic", "arrivals")
        consumer("new-left", "consumer").close()
        consumer("classic-left", "classic").close()
        consumer("deleted", "consumer").close()
        broker.tool(GROUPS, "--delete", "--group", "deleted")
        kept = [consumer("new-librdkafka", "consumer"), consumer("classic", "classic")]
        for one in kept:
            opened.callback(one.close)

        def are_there() -> bool:
            for one in kept:
                one.poll(0)
            names = {row["GROUP"] for row in broker.rows(GROUPS, "--describe", "--all-groups", "--members")}
            shares = broker.rows(SHARES, "--describe", "--all-groups", "--offsets")
            ends = broker.rows(GROUPS, "--describe", "--group", "new-pattern")
            return (
                names == {"new-java", "new-static", "new-pattern", "new-librdkafka", "classic"}
                and [row["LAG"] for row in shares] == ["0", "0"]
                and [row["LAG"] for row in ends] == ["0"] * 6
            )

        wait_until(are_there, "all groups to have their members, and to have read", PATIENCE_S)
        yield broker


@pytest.fixture(params=["brokers", "folder"])
def place(request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path) -> str:
    if request.param == "brokers":
        return kafka.bootstrap
    # Members commit every five seconds: checkpoints that are newer than the copied logs would say that records are missing.
    copy = tmp_path / "data"
    copy.mkdir()
    for checkpoint in kafka.data.glob("*-checkpoint"):
        shutil.copy(checkpoint, copy)
    shutil.copytree(kafka.data, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*-checkpoint*"))
    return str(copy)


def described(place: str, group: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_ok("groups", "describe", place, group, "--json").stdout.splitlines()]


def test_the_list(kafka: Kafka, place: str) -> None:
    theirs = {
        row["GROUP"]: (row["TYPE"].lower(), row["PROTOCOL"])
        for row in kafka.rows("org.apache.kafka.tools.GroupsCommand", "--list")
    }
    states = {row["GROUP"]: row["STATE"] for row in kafka.rows(GROUPS, "--describe", "--all-groups", "--state")}
    states |= {row["GROUP"]: row["STATE"] for row in kafka.rows(SHARES, "--describe", "--all-groups", "--state")}
    ran = run_ok("groups", "list", place, "--json")
    ours = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {one["group"]: (one["type"], one["protocol_type"]) for one in ours} == theirs
    assert {one["group"]: one["state"] for one in ours} == states
    assert len(ours) == 8
    assert ran.notes == []


def test_members(kafka: Kafka, place: str) -> None:
    rows = kafka.rows(GROUPS, "--describe", "--all-groups", "--members", "--verbose")
    theirs = {(row["GROUP"], row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], row["CURRENT-ASSIGNMENT"]) for row in rows}
    rows = kafka.rows(SHARES, "--describe", "--all-groups", "--members")
    theirs |= {(row["GROUP"], row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], row["ASSIGNMENT"]) for row in rows}
    ours = set()
    for group in {row[0] for row in theirs}:
        for line in described(place, group):
            if line["type"] == "member":
                topics: dict[str, list[str]] = {}
                for topic, partition in line["assignment"]:
                    topics.setdefault(topic, []).append(str(partition))
                shown = ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())
                ours.add((group, line["member_id"], line["client_host"], line["client_id"], shown))
                assert line["group_instance_id"] == ("first" if group == "new-static" else None)
    assert ours == theirs and len(ours) == 6


def test_offsets_and_lags(kafka: Kafka, place: str) -> None:
    rows = kafka.rows(GROUPS, "--describe", "--all-groups")
    rows += [
        row | {"CURRENT-OFFSET": row["START-OFFSET"]} for row in kafka.rows(SHARES, "--describe", "--all-groups", "--offsets")
    ]
    theirs = {(row["GROUP"], row["TOPIC"], row["PARTITION"]): (row["CURRENT-OFFSET"], row["LAG"]) for row in rows}
    ours = {}
    for group in {row["GROUP"] for row in rows}:
        for line in described(place, group):
            if line["type"] == "partition":
                shown = ("-" if value is None else str(value) for value in (line["committed_offset"], line["lag"]))
                ours[group, line["topic"], str(line["partition"])] = tuple(shown)
    assert ours == theirs
    lags = {one["group"]: one["lag"] for one in map(json.loads, run_ok("groups", "lag", place, "--json").stdout.splitlines())}
    assert lags["new-left"] == 50 and lags["new-java"] == lags["sharing"] == 0


def test_a_group_that_was_deleted(place: str) -> None:
    assert "there is no group 'deleted'" in run("groups", "describe", place, "deleted").error
