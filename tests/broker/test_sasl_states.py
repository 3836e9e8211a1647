"""Requests out of place on a connection that SASL guards. All of them beside Kafka's: tests/interop/test_sasl_states.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.broker.sasl_steps import MECHANISM, REQUESTS, USERS, plain, walked
from tidelog.broker.server.secured.authentication import REAUTHENTICATION_S
from tidelog.security.scram import MAX_DISGUISED_NAME, ScramClient
from tidelog.security.secret import Secret
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    + ";"
)
PROPERTIES = {
    "listeners": "ASKS://127.0.0.1:0",
    "listener.security.protocol.map": "ASKS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "connections.max.reauth.ms": "3600000",
    "listener.name.asks.plain.sasl.jaas.config": JAAS,
}
IN = ["handshake", "authenticate"]
NO, OK, WRONG = "ILLEGAL_SASL_STATE", "NONE", "SASL_AUTHENTICATION_FAILED"


class Time:
    """A monotonic clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("tidelog.broker.server.secured.authentication.monotonic", time)
    return time


@pytest.fixture
def address(tmp_path: Path, time: Time) -> Iterator[tuple[str, int]]:
    broker = RunningBroker(tmp_path / "data", **PROPERTIES)
    yield ("127.0.0.1", broker.running.listeners[0].port)
    broker.stop()


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        (["authenticate"], ["closed"]),
        (["versions", "versions"], [OK, "closed"]),
        (["versions of a bad name", "versions", *IN], ["INVALID_REQUEST", OK, OK, OK, OK]),
        (["handshake", "groups"], [OK, NO, "closed"]),
        (["handshake", "an unknown API"], [OK, "closed"]),
        ([*IN, "authenticate"], [OK, OK, NO, OK]),
        ([*IN, "handshake", "groups"], [OK, OK, OK, NO, "closed"]),
        ([*IN, "handshake", "metadata"], [OK, OK, OK, "closed"]),
        ([*IN, "handshake", "authenticate as bob"], [OK, OK, OK, WRONG, "closed"]),
        ([*IN, "handshake of none"], [OK, OK, "closed"]),
        ([*IN, "handshake of SCRAM"], [OK, OK, OK, "closed"]),
        ([*IN, *IN], [OK] * 5),
        ([*IN, *IN, "handshake", "groups"], [*[OK] * 4, NO, OK, OK]),
        ([*IN, *IN, *IN], [*[OK] * 4, NO, NO, OK]),
    ],
)
def test_what_is_out_of_place(address: tuple[str, int], steps: list[str], outcome: list[str]) -> None:
    assert walked(address, steps) == outcome


def test_re_authentication_once_a_second(address: tuple[str, int], time: Time) -> None:
    """Seconds count from the beginning of the last one; the first may come at once."""
    with RawClient(address) as client:

        def codes() -> list[int]:
            return [client.ask(*REQUESTS[step]).error_code for step in IN]

        assert codes() == codes() == [0, 0]
        assert codes() == [34, 34]
        time.now += REAUTHENTICATION_S
        assert codes() == [0, 0]
        assert codes() == [34, 34]


@pytest.mark.parametrize(("name", "code"), [("nobody", 0), ("n" * MAX_DISGUISED_NAME, 0), ("n" * 1000, 58)])
def test_an_unknown_user_of_scram_gets_a_challenge_unless_it_is_nobodys_name(
    address: tuple[str, int], name: str, code: int
) -> None:
    with RawClient(address) as client:
        assert client.ask(SaslHandshakeRequest(MECHANISM), 1).error_code == 0
        first = ScramClient(MECHANISM, name, Secret("any")).first()
        assert client.ask(SaslAuthenticateRequest(first), 2).error_code == code


def test_a_name_of_plain_is_compared_whatever_its_length(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        answer = client.ask(SaslAuthenticateRequest(plain("alice").replace(b"alice", b"n" * 1000, 1)), 2)
        assert answer.error_code == 58
        assert client.closed()
