"""Users of SCRAM that clients make: at once known, at once gone, on the disk without their passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tidelog.errors import AuthenticationError
from tidelog.security.scram import SCRAM_IDS, salted_password
from tidelog.security.secret import Secret
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

SALT = b"of-the-tests"


def upsertion(name: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = salted_password(mechanism, Secret(password), SALT, iterations)
    return ScramCredentialUpsertion(name, SCRAM_IDS[mechanism], iterations, SALT, salted)


def deletion(name: str, mechanism: str = "SCRAM-SHA-256") -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name, SCRAM_IDS[mechanism])


def altered(
    client: RawClient, *upsertions: ScramCredentialUpsertion, deletions: tuple[ScramCredentialDeletion, ...] = ()
) -> dict[str, str]:
    answer = client.ask(AlterUserScramCredentialsRequest(list(deletions), list(upsertions)), 0)
    return {one.user: ErrorCode(one.error_code).name for one in answer.results}


def described(client: RawClient) -> dict[str, list[tuple[int, int]]]:
    answer = client.ask(DescribeUserScramCredentialsRequest(None), 0)
    return {one.user: [(info.mechanism, info.iterations) for info in one.credential_infos] for one in answer.results}


@pytest.fixture
def secured(start_broker: StartBroker, tmp_path: Path) -> RunningBroker:
    return start_broker(
        tmp_path / "data",
        listeners="OPEN://127.0.0.1:0,SASL://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        },
    )


def enter(broker: RunningBroker, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    port = broker.on_loop(lambda: broker.node.listeners[1].port)
    config = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    with tidelog.connect(f"127.0.0.1:{port}", **config, **{"security.protocol": "SASL_PLAINTEXT"}) as client:
        client.topics()


def refusal(broker: RunningBroker, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> str:
    with pytest.raises(AuthenticationError) as caught:
        enter(broker, name, password, mechanism)
    return str(caught.value)


def test_a_user_is_known_at_once_and_gone_at_once(secured: RunningBroker) -> None:
    with secured.client() as client:
        unknown = refusal(secured, "ann", "right")
        assert altered(client, upsertion("ann", "right"), upsertion("bob", "his", "SCRAM-SHA-512", 8192)) == {
            "ann": "NONE",
            "bob": "NONE",
        }
        enter(secured, "ann", "right")
        enter(secured, "bob", "his", "SCRAM-SHA-512")
        assert refusal(secured, "ann", "wrong") == unknown, "who is known is not said"
        assert refusal(secured, "bob", "his", "SCRAM-SHA-256") == unknown
        assert described(client) == {"ann": [(1, 4096)], "bob": [(2, 8192)]}
        assert altered(client, upsertion("ann", "new")) == {"ann": "NONE"}
        assert refusal(secured, "ann", "right") == unknown
        enter(secured, "ann", "new")
        assert altered(client, deletions=(deletion("ann"),)) == {"ann": "NONE"}
        assert refusal(secured, "ann", "new") == unknown
        assert described(client) == {"bob": [(2, 8192)]}
    held = b"".join(path.read_bytes() for path in secured.data_dir.rglob("*") if path.is_file())
    salted = salted_password("SCRAM-SHA-512", Secret("his"), SALT, 8192)
    assert b"bob" in held and salted not in held


def test_what_is_refused(secured: RunningBroker) -> None:
    with secured.client() as client:
        assert altered(client, upsertion("ann", "x"), upsertion("twice", "x"), upsertion("twice", "x", "SCRAM-SHA-512")) == {
            "ann": "NONE",
            "twice": "DUPLICATE_RESOURCE",
        }
        odd = ScramCredentialUpsertion("odd", 7, 4096, SALT, b"salted")
        few = ScramCredentialUpsertion("few", 1, 4095, SALT, b"salted")
        many = ScramCredentialUpsertion("many", 1, 16385, SALT, b"salted")
        none = ScramCredentialUpsertion("", 1, 4096, SALT, b"salted")
        found = altered(client, odd, few, many, none, upsertion("ann", "y"), deletions=(deletion("eve"), deletion("ann")))
        assert found == {
            "odd": "UNSUPPORTED_SASL_MECHANISM",
            "few": "UNACCEPTABLE_CREDENTIAL",
            "many": "UNACCEPTABLE_CREDENTIAL",
            "": "UNACCEPTABLE_CREDENTIAL",
            "eve": "RESOURCE_NOT_FOUND",
            "ann": "DUPLICATE_RESOURCE",
        }
        assert described(client) == {"ann": [(1, 4096)]}
    assert "salted" not in repr(odd), "secrets are not shown"


def test_another_start_finds_them(secured: RunningBroker, start_broker: StartBroker) -> None:
    with secured.client() as client:
        altered(client, upsertion("ann", "x", iterations=5000))
    secured.stop()
    broker = start_broker(secured.data_dir)
    with broker.client() as client:
        assert described(client) == {"ann": [(1, 5000)]}
