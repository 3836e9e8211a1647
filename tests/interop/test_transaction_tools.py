"""kafka-transactions, against the broker, beside what it says of Apache Kafka 3.9.1: 3.9.1's, and the newest.

One scenario on each broker; what the tool prints and how it ends has to be the same, but for producer ids and times, which get
names in the order of their appearance.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.broker.transactions.producers import TransactionalProducer, committed, find_coordinator, offset_of, producers
from tests.interop.gate import first_of
from tests.interop.peers import Peer, served
from tests.interop.test_transaction_folders import end, insist
from tests.kafka import Kafka391
from tests.kafka.clients import create_topics
from tests.kafka.java import wait_until
from tests.kafka.java_tools import RELEASES, TRANSACTIONS, JavaTools, Said
from tests.patience import PATIENCE_S
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

PROPERTIES = {
    "transaction.partition.verification.enable": "false",  # Only so a transaction can be made to hang.
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
EVENTS = "events"
HOUR_MS = 3_600_000

Transcript = dict[str, tuple[int, list[str]]]


class Scenario:
    """What is done with one broker by the tool of one release."""

    def __init__(self, bootstrap: str, tools: JavaTools) -> None:
        self.bootstrap = bootstrap
        self.tools = tools
        self.mark = tools.release.replace(".", "")
        self.topic = f"{EVENTS}-{self.mark}"
        self.transcript: Transcript = {}
        self.names: dict[str, str] = {}

    def run(self) -> Transcript:
        create_topics(self.bootstrap, {self.topic: {}}, 3)
        host, port = self.bootstrap.split(":")
        ids = ("hangs", "none", "committed", "open")
        made = [TransactionalProducer((host, int(port)), f"{one}-{self.mark}", timeout_ms=600_000, is_found=False) for one in ids]
        try:
            self.steps(*made)
        finally:
            for one in made:
                one.client.close()
        return self.transcript

    def steps(
        self,
        hangs: TransactionalProducer,
        none: TransactionalProducer,
        done: TransactionalProducer,
        opened: TransactionalProducer,
    ) -> None:
        topic, broker = self.topic, ("--broker-id", "1")
        wait_until(lambda: found(none), "the coordinator", PATIENCE_S)
        for _ in range(1000):  # Kafka's ids are to be reported from epochs.
            none.client.ask(InitProducerIdRequest(None), 4)
        for one in (hangs, none, done, opened):
            insist(one.init)
            self.names[str(one.producer_id)] = f"ID-{one.transactional_id}"
        write_to(done, topic, 0)
        end(done)
        write_to(opened, topic, 0)
        write_to(opened, topic, 1)
        self.tool("list")
        self.tool("list", "--duration-filter", "3600000")
        for one in (none, done, opened):
            self.tool("describe", "--transactional-id", one.transactional_id)
        self.tool("describe", "--transactional-id", "nobody")
        for partition in (0, 1, 2):
            self.tool("describe-producers", "--topic", topic, "--partition", str(partition))
        self.tool("describe-producers", *broker, "--topic", topic, "--partition", "0")
        self.tool("find-hanging", *broker)
        self.tool("find-hanging", "--topic", topic)

        # Nobody told the coordinator: the transaction was forgotten when it ended elsewhere.
        insist(lambda: hangs.produce(topic, 2, at_ms=int(time.time() * 1000) - HOUR_MS))
        self.tool("find-hanging", "--topic", topic)
        self.tool("find-hanging", *broker, "--topic", topic, "--partition", "2")
        self.tool("find-hanging", "--topic", topic, "--max-transaction-timeout", "120")
        assert offset_of(none.client, topic, partition=2) == 0
        self.tool("abort", "--topic", topic, "--partition", "2", "--start-offset", "5")
        self.tool("abort", "--topic", topic, "--partition", "2", "--start-offset", "0")
        self.tool("find-hanging", "--topic", topic)
        self.tool("describe-producers", "--topic", topic, "--partition", "2")
        assert committed(none.client, topic, 2) == []
        assert offset_of(none.client, topic, partition=2) == 2

        insist(lambda: hangs.produce(topic, 2))
        (producer,) = producers(none.client, topic, 2)
        assert producer.current_txn_start_offset == 2
        who = ("--producer-id", str(hangs.producer_id), "--producer-epoch", str(hangs.epoch), "--coordinator-epoch")
        self.tool("abort", "--topic", topic, "--partition", "2", *who, "0")
        assert committed(none.client, topic, 2) == []
        end(opened, is_commit=False)
        self.tool("list")

    def tool(self, *arguments: str) -> Said:
        said = self.tools.run(TRANSACTIONS, "--bootstrap-server", self.bootstrap, *arguments)
        text = said.text.replace(self.bootstrap, "BROKER")
        for number, name in self.names.items():
            text = re.sub(rf"(?<!\d){number}(?!\d)", name, text)
        text = re.sub(r"(?<!\d)\d{13}(?!\d)", "TIME", text)
        lines = sorted(
            " ".join(line.split()) for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "SLF4J"))
        )
        # The ids of the other release are there as well (a producer's id may have the digits of this one's mark); how long ago is
        # nobody's to know.
        lines = [line for line in lines if not re.search(r"(hangs|none|committed|open)-\d", line) or f"-{self.mark}" in line]
        lines = [re.sub(r"TIME \d+\b", "TIME DURATION", line) for line in lines]
        name = " ".join(arguments)
        for number, given in self.names.items():
            name = re.sub(rf"(?<!\d){number}(?!\d)", given, name)
        while name in self.transcript:
            name += " again"
        self.transcript[name] = said.status, lines
        return said


def found(one: TransactionalProducer) -> bool:
    try:
        find_coordinator(one.client, one.transactional_id)
    except AssertionError:
        return False
    return True


def write_to(one: TransactionalProducer, topic: str, partition: int) -> None:
    insist(lambda: one.add((topic, partition)))
    insist(lambda: one.produce(topic, partition, at_ms=int(time.time() * 1000)))


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("transaction-tools"), PROPERTIES) as peer:
        yield peer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("kafka"), PROPERTIES) as kafka:
        yield kafka


@pytest.mark.parametrize("release", first_of(*RELEASES, why="the same commands by newer tools; never found anything"))
def test_transactions(peer: Peer, kafka: Kafka391, release: str) -> None:
    """kafka-transactions: list, describe, describe-producers, find-hanging, abort."""
    with JavaTools(release) as tools:
        here, there = (Scenario(bootstrap, tools).run() for bootstrap in (peer.bootstrap, kafka.bootstrap))
    assert list(here) == list(there)
    different = {name: (here[name], there[name]) for name in here if here[name] != there[name]}
    assert different == {}
