"""Each request in each state of an authentication, beside Kafka 3.9.1: a connection goes on, gets an error, or ends, as there.

The walks are in `tests.broker.sasl_steps`. Two answers differ on purpose: see `DELIBERATE`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.broker.sasl_steps import MECHANISM, USERS, WALKS, walked
from tests.kafka import Kafka391
from tests.kafka.java import free_port, wait_until
from tidelog.broker.server.secured.authentication import REAUTHENTICATION_S
from tidelog.security.scram import DEFAULT_ITERATIONS, SCRAM_IDS, salted_password
from tidelog.security.secret import Secret
from tidelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
COMMON = {
    "listener.security.protocol.map": "OPEN:PLAINTEXT,ASKS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "connections.max.reauth.ms": "3600000",
    "listener.name.asks.plain.sasl.jaas.config": f"{PLAIN} required "
    + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    + ";",
    f"listener.name.asks.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM} required;",
}

DELIBERATE = {
    "in PLAIN, metadata": "Kafka answers what was asked with an error in each topic, and closes; here it is closed",
    "in SCRAM, metadata": "the same",
    "in the midst of SCRAM, metadata": "the same",
    "in SCRAM, begin SCRAM": "the same, by the request behind it",
    "in re-authentication, metadata": "the same",
}
DELIBERATE |= {
    name: "the same, by the request behind it" for name, steps in WALKS.items() if steps and steps[-1].startswith("handshake")
}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, int]]]:
    folder = tmp_path_factory.mktemp("sasl-states")
    kafka, asks = Kafka391(folder / "kafka"), free_port()
    both = f"OPEN://127.0.0.1:{kafka.port},ASKS://127.0.0.1:{asks}"
    kafka.properties = COMMON | {
        "listeners": f"{both},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": both,
        "inter.broker.listener.name": "OPEN",
    }
    with kafka:
        tidelog = RunningBroker(folder / "tidelog", **COMMON, listeners="OPEN://127.0.0.1:0,ASKS://127.0.0.1:0")
        try:
            ports = {one.name: one.port for one in tidelog.running.listeners}
            for port in (kafka.port, ports["OPEN"]):
                make_user(port)
            yield [("127.0.0.1", asks), ("127.0.0.1", ports["ASKS"])]
        finally:
            tidelog.stop()


def make_user(port: int) -> None:
    salt = os.urandom(16)
    salted = salted_password(MECHANISM, Secret(USERS["alice"]), salt, DEFAULT_ITERATIONS)
    upsertion = ScramCredentialUpsertion("alice", SCRAM_IDS[MECHANISM], DEFAULT_ITERATIONS, salt, salted)
    with RawClient(("127.0.0.1", port)) as client:
        (result,) = client.ask(AlterUserScramCredentialsRequest([], [upsertion]), 0).results
        assert result.error_code == 0
        asked = DescribeUserScramCredentialsRequest([UserName("alice")])
        wait_until(lambda: client.ask(asked, 0).results[0].error_code == 0, "the user")


def in_time(address: tuple[str, int], name: str) -> list[str]:
    """Walk, and again if it took so long that a second re-authentication may have been allowed."""
    has_second = name.startswith(("re-authenticated", "in a second"))
    while True:
        began = monotonic()
        outcome = walked(address, WALKS[name])
        if not has_second or monotonic() - began < REAUTHENTICATION_S:
            return outcome


def test_each_request_in_each_state(addresses: list[tuple[str, int]]) -> None:
    def outcomes(name: str) -> list[list[str]]:
        return [in_time(address, name) for address in addresses]

    with ThreadPoolExecutor(4) as threads:
        found = dict(zip(WALKS, threads.map(outcomes, WALKS), strict=True))
    differences = {name: both for name, both in found.items() if both[0] != both[1]}
    assert {name: both for name, both in differences.items() if name not in DELIBERATE} == {}
    for name, (kafka, tidelog) in differences.items():
        assert kafka[: len(tidelog) - 1] == tidelog[:-1], name
        assert tidelog[-1] == "closed", name
    assert len(found) > 200
