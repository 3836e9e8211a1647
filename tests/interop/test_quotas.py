"""Quotas and SCRAM's users beside Apache Kafka 3.9.1's: the same refusals, the same throughput, one folder for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.broker.produce_helpers import message_set, produce_request, some_records
from tests.broker.quotas.test_alter_client_quotas import MORE_IS_REFUSED, WRONG, altered, entry
from tests.broker.quotas.test_alter_client_quotas import found as found_in_order
from tests.broker.raw import RawClient
from tests.broker.test_scram_users import altered as altered_users
from tests.broker.test_scram_users import deletion, described, upsertion
from tests.kafka import Kafka391
from tests.kafka.java import free_port, wait_until
from tests.kafka.java_tools import run_tool
from tests.patience import PATIENCE_S
from tidelog.errors import AuthenticationError
from tidelog.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

RATE = 100_000.0
SECONDS = 14
"""Ten seconds' worth goes at once; the rest at the rate."""
STILL_S = 2
"""An answer that comes later is this machine's affair. A request takes a second of the rate, so a smaller delay costs nothing."""

PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "offsets.topic.num.partitions": "1",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Both:
    """A Kafka, and a Tidelog; each with a listener for SCRAM."""

    def __init__(self, folder: Path) -> None:
        self.kafka = Kafka391(folder)
        self.sasl = free_port()
        clients = f"PLAINTEXT://127.0.0.1:{self.kafka.port},SASL://127.0.0.1:{self.sasl}"
        self.kafka.properties |= PROPERTIES | {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self.kafka.controller_port}",
            "advertised.listeners": clients,
            "metadata.log.dir": str(self.kafka.data),
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": SCRAM,
        }
        self.ours = self.tidelog(folder / "ours")

    def tidelog(self, data: Path) -> tidelog.Broker:
        listeners = "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0"
        return tidelog.Broker(data, listeners=listeners, **(PROPERTIES | {"controller.listener.names": "CONTROLLER"}))

    def clients(self) -> tuple[RawClient, RawClient]:
        return client_of(self.kafka.port), client_of(self.ours.port)


def found(client: RawClient) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    """What quotas there are; Kafka names the parts of an entity in any order."""
    return {frozenset(parts): values for parts, values in found_in_order(client).items()}


def client_of(port: int, client_id: str = "judge") -> RawClient:
    return RawClient(("127.0.0.1", port), client_id=client_id)


def enter(port: int, name: str, password: str) -> bool:
    """Whether a user gets in."""
    config = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name, "sasl.password": password}
    try:
        tidelog.connect(f"127.0.0.1:{port}", **config, **{"security.protocol": "SASL_PLAINTEXT"}).close()
    except AuthenticationError:
        return False
    return True


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    made = Both(tmp_path_factory.mktemp("quotas"))
    with made.kafka, made.ours:
        made.kafka.create_topic("t")
        made.ours.create_topic("t")
        yield made


def test_the_same_is_refused(both: Both) -> None:
    kafka, ours = both.clients()
    right = entry((("user", None), ("client-id", "x")), producer_byte_rate=5.0, controller_mutation_rate=0.5)
    with kafka, ours:
        for number, one in enumerate(WRONG):
            if number in MORE_IS_REFUSED:
                continue
            assert altered(ours, one) == altered(kafka, one), (number, one)
        for one in (right, entry((("ip", None),), connection_creation_rate=9.0), entry((("user", "u"),), request_percentage=1.5)):
            assert altered(ours, one) == altered(kafka, one) == ["NONE"]
        wait_for(lambda: found(kafka) == found(ours))
        removals = [
            entry((("client-id", "x"), ("user", None)), producer_byte_rate=None, controller_mutation_rate=None),
            entry((("ip", None),), connection_creation_rate=None),
            entry((("user", "u"),), request_percentage=None),
        ]
        for one in removals:
            assert altered(ours, one) == altered(kafka, one) == ["NONE"]
        wait_for(lambda: found(kafka) == found(ours) == {})


def test_users_are_refused_alike(both: Both) -> None:
    kafka, ours = both.clients()
    odd = [
        ScramCredentialUpsertion("odd", 7, 4096, b"salt", b"salted"),
        ScramCredentialUpsertion("few", 1, 4095, b"salt", b"salted"),
        ScramCredentialUpsertion("many", 1, 16385, b"salt", b"salted"),
        ScramCredentialUpsertion("", 1, 4096, b"salt", b"salted"),
        upsertion("twice", "x"),
        upsertion("twice", "x", "SCRAM-SHA-512"),
        upsertion("ann", "hers"),
        upsertion("bob", "his", iterations=8192),
    ]
    with kafka, ours:
        answer = altered_users(kafka, *odd, deletions=(deletion("eve"),))
        assert altered_users(ours, *odd, deletions=(deletion("eve"),)) == answer
        assert answer["ann"] == "NONE" and answer["eve"] == "RESOURCE_NOT_FOUND"
        wait_for(lambda: described(kafka) == described(ours) == {"ann": [(1, 4096)], "bob": [(1, 8192)]})
        for port in (both.sasl, both.ours._listeners[1].port):
            assert enter(port, "ann", "hers") and not enter(port, "ann", "his") and not enter(port, "eve", "his")


def wait_for(condition: Any) -> None:
    """Kafka's brokers see a change some time after the controller has answered."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


Ask = Callable[[RawClient], tuple[int, int]]
"""Asks once; returns the bytes that went, and the time (ms) for which the client is throttled."""


def producing() -> Ask:
    records = message_set(2, records=some_records(1, at_ms=int(time.time() * 1000), value=bytes(100_000)))

    def ask(client: RawClient) -> tuple[int, int]:
        answer = client.ask(produce_request(records, acks=1), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return len(records), answer.throttle_time_ms

    return ask


def fetching() -> Ask:
    offset = 0

    def ask(client: RawClient) -> tuple[int, int]:
        nonlocal offset
        partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=101_000)
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic("t", partitions=[partition])]), 11)
        size = sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)
        assert bool(size) != bool(answer.throttle_time_ms), "what waits has no records"
        offset = (offset + bool(size)) % 10
        return size, answer.throttle_time_ms

    return ask


def greedily(port: int, ask: Ask) -> tuple[int, float, float]:
    """Ask without a pause. Return the bytes that went, in how many seconds, and the most seconds that an answer took beyond the
    throttle before it.
    """
    size, late_s, throttled_s = 0, 0.0, 0.0
    with client_of(port, "greedy") as client:
        began = before = time.monotonic()
        while before < began + SECONDS:
            went, throttled_ms = ask(client)
            now = time.monotonic()
            late_s = max(late_s, now - before - throttled_s)
            size, before, throttled_s = size + went, now, throttled_ms / 1000
    return size, before - began, late_s


def test_throughput_is_the_same(both: Both) -> None:
    kafka, ours = both.clients()
    limits = entry((("client-id", "greedy"),), producer_byte_rate=RATE, consumer_byte_rate=RATE)
    with kafka, ours:
        for client in (kafka, ours):
            assert altered(client, limits) == ["NONE"]
        wait_for(lambda: found(kafka) == found(ours))

    def is_compared(use: Callable[[], Ask]) -> bool:
        """Whether this machine has let both go on: who stands still for long does not use the rate."""
        with ThreadPoolExecutor(2) as pool:
            (theirs, _, their_delay_s), (size, took_s, delay_s) = pool.map(
                lambda port: greedily(port, use()), (both.kafka.port, both.ours.port)
            )
        assert size < 1.25 * RATE * (10 + took_s)
        if max(their_delay_s, delay_s) > STILL_S:
            return False
        assert 0.85 < size / theirs < 1.15, (use.__name__, size, theirs)
        return True

    for use in (producing, fetching):
        wait_until(lambda use=use: is_compared(use), f"{SECONDS} s in which both go on")  # type: ignore[misc]


def test_kafkas_tool(both: Both) -> None:
    def configs(*arguments: str) -> str:
        of = ("--entity-type", "users", "--entity-name", "tom", "--bootstrap-server", both.ours.bootstrap_servers)
        return run_tool("3.9.1", "kafka.admin.ConfigCommand", (*arguments, *of))

    for added in ("producer_byte_rate=1024", "SCRAM-SHA-256=[iterations=4096,password=of-tom]"):
        assert "Completed updating config for user tom." in configs("--alter", "--add-config", added)
    shown = configs("--describe")
    assert "producer_byte_rate=1024.0" in shown and "SCRAM-SHA-256=iterations=4096" in shown
    assert enter(both.ours._listeners[1].port, "tom", "of-tom")


def test_one_folder_for_both(both: Both) -> None:
    """Kafka's users and quotas are known here, ours there; the last test: it stops the Kafka."""
    both.kafka.stop()
    with both.tidelog(both.kafka.data) as ours, client_of(ours.port) as client:
        assert set(described(client)) == {"ann", "bob"} and frozenset({("client-id", "greedy")}) in found(client)
        assert enter(ours._listeners[1].port, "ann", "hers")
        made = altered_users(client, upsertion("tim", "his own"), deletions=(deletion("bob"),))
        assert made == {"tim": "NONE", "bob": "NONE"}
        assert altered(client, entry((("user", "tim"),), producer_byte_rate=77.0)) == ["NONE"]
        quotas = found(client)
    both.kafka.start()
    with client_of(both.kafka.port) as client:
        wait_for(lambda: found(client) == quotas and set(described(client)) == {"ann", "tim"})
    assert enter(both.sasl, "tim", "his own") and not enter(both.sasl, "bob", "his")
