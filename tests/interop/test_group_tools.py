"""Kafka's command-line tools for groups, against the broker, beside what they say of Apache Kafka 3.9.1: 3.9.1's, and the newest.

kafka-consumer-groups: one scenario on each broker; what it prints and how it ends has to be the same, but for the parts of member
ids that are drawn, and the order of lines, which is that of hash tables. Then the tools that read in a group.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.gate import first_of
from tests.interop.peers import Peer, served
from tests.kafka import Kafka391
from tests.kafka.clients import NewRow, commit_offsets, create_topics, produce
from tests.kafka.group_members import LibrdkafkaMember, Place, wait_until_read, wait_until_settled
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.kafka.java_tools import (
    CONSOLE_CONSUMER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    RELEASES,
    JavaTools,
    Said,
)
from tests.patience import PATIENCE_S

VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
NOW_MS = int(time.time() * 1000)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROWS = 10
"""In each partition, an hour between two of them; the last half an hour ago. So no duration is near any, while a test runs."""

PARTITIONS = 3
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_TRACE = re.compile(r"\t(at |\.\.\. \d+ more)")

Transcript = dict[str, tuple[int, list[str]]]
"""By command line: the status; the lines, sorted, blanks between words made one."""


def row_ms(row: int, now_ms: int = NOW_MS) -> int:
    return now_ms - HOUR_MS // 2 - (ROWS - 1 - row) * HOUR_MS


def at(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


class Scenario:
    """What is done with one broker by the tools of one release. Both brokers have their records from the same `now_ms` on."""

    def __init__(self, bootstrap: str, tools: JavaTools, folder: Path, now_ms: int) -> None:
        self.bootstrap = bootstrap
        self.now_ms = now_ms
        self.tools = tools
        self.folder = folder
        self.transcript: Transcript = {}
        # Each release has its own topics and groups: names of the same length.
        self.mark = tools.release.replace(".", "")
        self.topic, self.other = f"orders-{self.mark}", f"others-{self.mark}"
        self.group, self.lone = f"readers-{self.mark}", f"lone-{self.mark}"
        self.step = "before"
        self.server = ("--bootstrap-server", bootstrap, "--timeout", str(PATIENCE_S * 1000))

    def run(self) -> Transcript:
        for topic in (self.topic, self.other):
            create_topics(self.bootstrap, {topic: {}}, PARTITIONS)
        for partition in range(PARTITIONS):
            rows = [NewRow(b"k", b"%d:%d" % (partition, row), self.row_ms(row)) for row in range(ROWS)]
            produce(self.bootstrap, self.topic, rows, partition)
        produce(self.bootstrap, self.other, [NewRow(b"k", b"v", self.row_ms(row)) for row in range(ROWS)])
        # Nobody has to wait for the topic of the offsets. The tools are not shown this group.
        commit_offsets(self.bootstrap, "first", [TopicPartition(self.topic, 0, 0)])
        self.nothing_there()
        self.with_members()
        self.reset()
        self.delete()
        return self.transcript

    def row_ms(self, row: int) -> int:
        return row_ms(row, self.now_ms)

    def groups(self, *arguments: str) -> Said:
        said = self.tools.run(CONSUMER_GROUPS, *self.server, *arguments)
        text = _PORT.sub("127.0.0.1:PORT", _UUID.sub("UUID", said.text))
        lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip() and not _TRACE.match(line))
        if arguments[0] == "--list":
            lines = [line for line in lines if self.mark in line or line.startswith("GROUP")]
        name = " ".join((self.step, *arguments))
        while name in self.transcript:
            name += " again"
        self.transcript[name] = (said.status, lines)
        return said

    def nothing_there(self) -> None:
        none = ("--group", f"none-{self.mark}")
        self.groups("--list")
        self.groups("--describe", *none)
        self.groups("--describe", *none, "--members")
        self.groups("--describe", *none, "--state")
        self.groups("--delete", *none)
        self.groups("--delete-offsets", *none, "--topic", self.topic)
        self.groups("--reset-offsets", *none, "--topic", "no-such-topic", "--to-earliest", "--dry-run")

    def with_members(self) -> None:
        self.step = "with members"
        one = {"client_id": "one", "instance_id": "static-one", "session_timeout_ms": 15_000}
        with (
            LibrdkafkaMember(self.bootstrap, self.group, [self.topic], **one) as first,  # type: ignore[arg-type]
            LibrdkafkaMember(self.bootstrap, self.group, [self.topic], client_id="two") as second,
        ):
            wait_until_settled([first, second], [Place(self.topic, partition) for partition in range(PARTITIONS)])
            wait_until_read([first, second], ROWS * PARTITIONS)
            for member in (first, second):
                member.commit()
            commit(self.bootstrap, self.lone, self.other, 4)
            self.groups("--list")
            all_states: tuple[str, ...] = ()
            for states in (all_states, ("Stable",), ("Empty,Stable",), ("PreparingRebalance",), ("nonsense",)):
                self.groups("--list", "--state", *states)
            for types in ((), ("classic",), ("consumer",)):
                self.groups("--list", "--type", *types)
            for what in (("--offsets",), ("--members",), ("--members", "--verbose"), ("--state",), ("--offsets", "--verbose")):
                self.groups("--describe", "--group", self.group, *what)
            self.groups("--describe", "--group", self.lone)
            self.groups("--describe", "--group", self.group, "--group", self.lone, "--state")
            self.groups("--reset-offsets", "--group", self.group, "--topic", self.topic, "--to-earliest", "--execute")
            self.groups("--delete-offsets", "--group", self.group, "--topic", self.topic)
            self.groups("--delete", "--group", self.group)
            second.close()
            wait_until_settled([first], [Place(self.topic, partition) for partition in range(PARTITIONS)])
        # A static member is in its group until its session ends.
        self.step = "static member left"
        self.groups("--describe", "--group", self.group, "--members")
        self.step = "no members"
        self.wait(lambda: "Empty" in self.tools_state(), "the static member's session to end")
        for what in ((), ("--members",), ("--state",)):
            self.groups("--describe", "--group", self.group, *what)

    def tools_state(self) -> str:
        return self.tools.run(CONSUMER_GROUPS, *self.server, "--describe", "--group", self.group, "--state").text

    @staticmethod
    def wait(condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(0.3)

    def reset(self) -> None:
        self.step = "reset"
        group = ("--reset-offsets", "--group", self.group)
        forms: list[tuple[str, ...]] = [
            ("--to-datetime", at(self.row_ms(3))),
            ("--to-datetime", at(self.row_ms(3) + 1)),
            ("--to-datetime", at(self.row_ms(0) - MINUTE_MS) + "Z"),
            ("--to-datetime", at(self.now_ms)),
            ("--by-duration", "PT2H"),
            ("--by-duration", "P1D"),
            ("--by-duration", "PT0S"),
            ("--shift-by", "-2"),
            ("--shift-by", "+1"),
            ("--shift-by", "100"),
            ("--to-offset", "7"),
            ("--to-offset", "1000"),
            ("--to-earliest",),
            ("--to-latest",),
            ("--to-current",),
        ]
        for form in forms:
            self.groups(*group, "--topic", self.topic, *form, "--dry-run")
        self.groups("--describe", "--group", self.group)
        self.groups(*group, "--topic", f"{self.topic}:0,2", "--to-datetime", at(self.row_ms(3)), "--execute")
        self.groups("--describe", "--group", self.group)
        self.groups(*group, "--all-topics", "--shift-by", "-2", "--execute")
        self.groups("--describe", "--group", self.group)
        exported = self.groups(*group, "--topic", self.topic, "--topic", f"{self.other}:1", "--to-current", "--export").text
        plan = self.folder / f"{self.mark}.csv"
        plan.write_text("".join(f"{line}\n" for line in exported.splitlines() if re.fullmatch(r"[^, ]+,\d+,\d+", line)))
        assert len(plan.read_text().splitlines()) == PARTITIONS + 1, exported
        self.groups(*group, "--topic", self.topic, "--by-duration", "PT3H", "--execute")
        self.groups(*group, "--from-file", str(plan), "--dry-run")
        self.groups(*group, "--from-file", str(plan), "--execute")
        self.groups("--describe", "--group", self.group)
        both = ("--reset-offsets", "--group", self.group, "--group", self.lone)
        self.groups(*both, "--all-topics", "--to-latest", "--dry-run")
        self.groups(*both, "--all-topics", "--to-latest", "--export")

    def delete(self) -> None:
        self.step = "delete"
        self.groups("--delete-offsets", "--group", self.group, "--topic", f"{self.topic}:1", "--topic", self.other)
        self.groups("--delete-offsets", "--group", self.group, "--topic", "no-such-topic")
        self.groups("--describe", "--group", self.group)
        self.groups("--delete", "--group", self.group, "--group", f"none-{self.mark}")
        self.groups("--describe", "--group", self.group)
        self.groups("--list", "--state")


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """As a consumer does that assigns its partitions itself."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata="by hand")], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("group-tools"), PROPERTIES) as peer:
        yield peer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("kafka"), PROPERTIES) as kafka:
        yield kafka


@pytest.mark.parametrize("release", first_of(*RELEASES, why="the same commands by newer tools; never found anything"))
def test_consumer_groups(peer: Peer, kafka: Kafka391, release: str, tmp_path: Path) -> None:
    """kafka-consumer-groups, all that it can do."""
    now_ms = int(time.time() * 1000)
    with JavaTools(release) as tools:
        here, there = (Scenario(bootstrap, tools, tmp_path, now_ms).run() for bootstrap in (peer.bootstrap, kafka.bootstrap))
    assert list(here) == list(there)
    different = {name: (here[name], there[name]) for name in here if here[name] != there[name]}
    assert different == {}


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    with JavaTools("3.9.1") as tools:
        yield tools


def fill(peer: Peer, topic: str) -> None:
    peer.create_topics({topic: {}}, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(peer.bootstrap, topic, [NewRow(b"k", b"%d:%d" % (partition, row), row_ms(row)) for row in range(ROWS)], partition)


def committed(peer: Peer, tools: JavaTools, group: str) -> dict[tuple[str, int], int]:
    """By `kafka-consumer-groups --describe`."""
    text = tools.run(CONSUMER_GROUPS, "--bootstrap-server", peer.bootstrap, "--describe", "--group", group).text
    rows = [line.split() for line in text.splitlines() if line.startswith(f"{group} ")]
    return {(row[1], int(row[2])): int(row[3]) for row in rows if row[3] != "-"}


def test_console_consumer_in_a_group(peer: Peer, tools: JavaTools) -> None:
    """It reads on where the group was; after a reset by time, from that time on."""
    fill(peer, "console")
    consuming = (
        "--bootstrap-server",
        peer.bootstrap,
        "--topic",
        "console",
        "--group",
        "readers",
        "--timeout-ms",
        "60000",
    )
    first = tools.run(CONSOLE_CONSUMER, *consuming, "--from-beginning", "--max-messages", "30").text
    everything = [f"{partition}:{row}" for partition in range(PARTITIONS) for row in range(ROWS)]
    assert sorted(values(first)) == sorted(everything)
    assert committed(peer, tools, "readers") == {("console", partition): ROWS for partition in range(PARTITIONS)}
    produce(peer.bootstrap, "console", [NewRow(b"k", b"0:new", NOW_MS)])
    assert values(tools.run(CONSOLE_CONSUMER, *consuming, "--max-messages", "1").text) == ["0:new"]
    reset = ("--reset-offsets", "--group", "readers", "--topic", "console", "--to-datetime", at(row_ms(7)), "--execute")
    tools.run(CONSUMER_GROUPS, "--bootstrap-server", peer.bootstrap, *reset)
    again = values(tools.run(CONSOLE_CONSUMER, *consuming, "--max-messages", "10").text)
    assert sorted(again) == ["0:7", "0:8", "0:9", "0:new", "1:7", "1:8", "1:9", "2:7", "2:8", "2:9"]


def values(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.fullmatch(r"\d:\w+", line)]


def test_consumer_performance(peer: Peer, tools: JavaTools) -> None:
    """kafka-consumer-perf-test."""
    fill(peer, "perf")
    reading = ("--bootstrap-server", peer.bootstrap, "--topic", "perf", "--group", "perf-readers", "--messages", "30")
    said = tools.run(CONSUMER_PERFORMANCE, *reading, "--timeout", "60000")
    assert said.status == 0, said.text
    figures = dict(zip(*(line.split(", ") for line in said.text.splitlines()[-2:]), strict=True))
    assert int(figures["data.consumed.in.nMsg"]) == PARTITIONS * ROWS


def test_verifiable_consumers(peer: Peer) -> None:
    """Two, one after the other, in a group: what they are assigned, what they read, that it was committed."""
    fill(peer, "verifiable")
    reading = ("--bootstrap-server", peer.bootstrap, "--topic", "verifiable", "--group-id", "verifiers", "--max-messages")
    committed: list[int] = []
    for count in (12, 18):
        # It ends by itself, when it has read so many.
        printed = run_java(classpath("3.9.1"), VERIFIABLE_CONSUMER, [*reading, str(count), "--reset-policy", "earliest"])
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        names = [event["name"] for event in events]
        assert names[0] == "startup_complete"
        assert names[-1] == "shutdown_complete"
        assert "partitions_assigned" in names
        commits = [event for event in events if event["name"] == "offsets_committed"]
        assert all(event["success"] for event in commits)
        at_last = {place["partition"]: place["offset"] for event in commits for place in event["offsets"]}
        committed.append(sum(at_last.values()))
        read = [place for event in events if event["name"] == "records_consumed" for place in event["partitions"]]
        assert sum(place["maxOffset"] - place["minOffset"] + 1 for place in read) == count
    # The second one went on where the first one was.
    assert committed[0] == 12
    assert committed[1] >= 18
