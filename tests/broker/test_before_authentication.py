"""Attacks by somebody who has not authenticated, or whose session is over: refused as by Kafka, and nothing is learned."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.broker.server.connection import Connection
from tidelog.broker.server.secured.authentication import MAX_BYTES, MAX_HELD_BYTES
from tidelog.security.scram import ScramClient
from tidelog.security.secret import Secret
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

PASSWORD = "made-for-this-test"
SCRAM = "SCRAM-SHA-256"
ODD = "o,d=d\u00df\u20ac"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENERS = ("OPEN", "LONG", "OTHER", "OVER")
FAILED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
ITERATIONS = 8192
"""As many as most users of Kafka's tools have, and not the fewest that there may be."""


class Attacked:
    """A broker with users of PLAIN and SCRAM at three listeners: sessions are long at two, over at once at the third."""

    def __init__(self, folder: Path) -> None:
        users = f'{PLAIN} required user_alice="{PASSWORD}" user_bob="{PASSWORD}";'
        self.broker = RunningBroker(
            folder,
            **{
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{'PLAINTEXT' if name == 'OPEN' else 'SASL_PLAINTEXT'}" for name in LISTENERS
                ),
                "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
                "listener.name.long.connections.max.reauth.ms": "3600000",
                "listener.name.over.connections.max.reauth.ms": "1",
                **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": users for name in LISTENERS[1:]},
            },
        )
        self.ports = {one.name: one.port for one in self.broker.running.listeners}
        with self.client("OPEN") as client:
            for name in ("alice", ODD):
                salt = name.encode().hex().encode()
                salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, ITERATIONS)
                made = ScramCredentialUpsertion(name, 1, ITERATIONS, salt, salted)
                answer = client.ask(AlterUserScramCredentialsRequest([], [made]), 0)
                assert [one.error_code for one in answer.results] == [0]

    def client(self, name: str) -> RawClient:
        return RawClient(("127.0.0.1", self.ports[name]))

    def is_well(self) -> None:
        """Others are served, and get in."""
        with self.client("LONG") as client:
            assert plain(client, "bob").error_code == 0
            assert client.ask(MetadataRequest(None), 9).cluster_id


def plain(client: RawClient, name: str, password: str = PASSWORD) -> Any:
    assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    return client.ask(SaslAuthenticateRequest(f"\0{name}\0{password}".encode()), 2)


def scram(client: RawClient, name: str, password: str = PASSWORD) -> tuple[Any, Any]:
    """Return the challenge, and the last answer."""
    assert client.ask(SaslHandshakeRequest(SCRAM), 1).error_code == 0
    half = ScramClient(SCRAM, name, Secret(password))
    challenge = client.ask(SaslAuthenticateRequest(half.first()), 2)
    final = half.respond(bytes(challenge.auth_bytes))
    assert final is not None
    return challenge, client.ask(SaslAuthenticateRequest(final), 2)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    made = Attacked(tmp_path_factory.mktemp("attacked") / "data")
    yield made
    made.broker.stop()


# --- authenticating again ----------------------------------------------------------------------------------------------------


def test_again_as_somebody_else(attacked: Attacked) -> None:
    with attacked.client("LONG") as client:
        assert plain(client, "alice").session_lifetime_ms > 0
        answer = plain(client, "bob")
        assert answer.error_code == FAILED
        assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
        assert client.closed()


def test_again_by_another_mechanism(attacked: Attacked) -> None:
    """The handshake is answered, the next message ends the connection: as Kafka has it."""
    with attacked.client("LONG") as client:
        assert plain(client, "alice").error_code == 0
        assert client.ask(SaslHandshakeRequest(SCRAM), 1).error_code == 0
        client.send(SaslAuthenticateRequest(ScramClient(SCRAM, "alice", Secret(PASSWORD)).first()), 2)
        assert client.closed()


def test_again_with_a_wrong_password(attacked: Attacked) -> None:
    with attacked.client("LONG") as client:
        assert plain(client, "alice").error_code == 0
        assert plain(client, "alice", "wrong").error_code == FAILED
        assert client.closed()


def test_a_session_that_is_over(attacked: Attacked) -> None:
    """Its first request ends the connection; authenticating again is what it may do."""
    with attacked.client("OVER") as client:
        assert plain(client, "alice").error_code == 0
        assert plain(client, "alice").error_code == 0
        for _ in range(1000):
            client.send(MetadataRequest(None), 9)
            try:
                client.receive()
            except ConnectionError:
                break
        else:
            pytest.fail("a session of a millisecond has not ended")


def test_where_sessions_do_not_end(attacked: Attacked) -> None:
    """There is nothing to authenticate again for: the state is wrong, and the session goes on."""
    with attacked.client("OTHER") as client:
        assert plain(client, "alice").session_lifetime_ms == 0
        assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = client.ask(SaslAuthenticateRequest(f"\0bob\0{PASSWORD}".encode()), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(None), 9).cluster_id


# --- who is there ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nobody", "", "ali", "alice ", "ALICE", "a,=c", ODD + "x", "x" * 255])
def test_who_is_there_is_not_told(attacked: Attacked, name: str) -> None:
    def by_plain(name: str) -> tuple[int, str]:
        with attacked.client("LONG") as client:
            answer = plain(client, name, "wrong")
            assert client.closed()
            return answer.error_code, answer.error_message

    def by_scram(name: str, listener: str) -> tuple[str, int, str, int, str]:
        with attacked.client(listener) as client:
            challenge, answer = scram(client, name, "wrong")
            assert client.closed()
            match = re.fullmatch(r"r=[^,]+,s=([^,]+),(i=\d+)", bytes(challenge.auth_bytes).decode())
            assert match is not None
            salt = base64.b64decode(match[1])
            assert salt.isalnum() and salt.lower() == salt
            return match[1], answer.error_code, answer.error_message, answer.session_lifetime_ms, match[2]

    if name:
        assert by_plain(name) == by_plain("alice")
        assert by_scram(name, "LONG") == by_scram(name, "OTHER"), "at another listener it is another user's salt"
        assert by_scram(name, "LONG")[1:] == by_scram("alice", "LONG")[1:]
    else:
        assert by_plain(name)[0] == FAILED


def test_odd_names(attacked: Attacked) -> None:
    with attacked.client("LONG") as client:
        assert scram(client, ODD)[1].error_code == 0
        assert client.ask(MetadataRequest(None), 9).cluster_id


# --- what makes no sense -----------------------------------------------------------------------------------------------------

FIRST = [
    b"n,,n=alice,r=C",
    b"n,a=bob,n=alice,r=C",
    b"n,,n=al=2Cice,r=C",
    b"n,,n=al=ice,r=C",
    b"n,,n=,r=C",
    b"n,,n=alice,r=",
    b"y,,n=alice,r=C",
]
FINAL = [b"c=biws,r=C,p=AAAA", b"c=,r=,p=", b"v=AAAA", b"e=other-error", b"c=biws,r=C" + b"x" * 9000 + b",p=AAAA"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(FIRST) | st.binary(max_size=200),
    st.sampled_from(FINAL) | st.binary(max_size=200),
    st.sampled_from([SCRAM, "PLAIN"]),
)
def test_any_messages(attacked: Attacked, first: bytes, final: bytes, mechanism: str) -> None:
    """Each is answered by a challenge or the refusal, and then the end: nobody waits, nobody gets in."""
    with attacked.client("LONG") as client:
        assert client.ask(SaslHandshakeRequest(mechanism), 1).error_code == 0
        answer = client.ask(SaslAuthenticateRequest(first), 2)
        if not answer.error_code:
            answer = client.ask(SaslAuthenticateRequest(final), 2)
        assert answer.error_code == FAILED
        assert client.closed()


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 1 << 20, (1 << 31) - 1, -1, -(1 << 31)])
def test_what_is_announced(attacked: Attacked, size: int) -> None:
    with socket.create_connection(("127.0.0.1", attacked.ports["LONG"]), timeout=PATIENCE_S) as sock:
        sock.sendall(struct.pack(">i", size))
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    attacked.is_well()


def test_a_token_as_large_as_may_be(attacked: Attacked) -> None:
    with attacked.client("LONG") as client:
        assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        answer = client.ask(SaslAuthenticateRequest(b"\0alice\0" + b"x" * (MAX_BYTES - 200)), 2)
        assert answer.error_code == FAILED
    with attacked.client("LONG") as client:
        assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        client.send(SaslAuthenticateRequest(b"\0alice\0" + b"x" * MAX_BYTES), 2)
        assert client.closed()


def frames() -> Iterator[bytes]:
    """Yield what an attacker leaves lying: most of a large frame; many small ones, the answers to which are not read."""
    yield struct.pack(">i", MAX_BYTES) + bytes(MAX_BYTES - 1)
    yield struct.pack(">i", 40_000) + bytes(39_999)
    # Of all requests before authentication only one that is refused may be repeated.
    one = b"".join(request_chunks(ApiVersionsRequest("", ""), 3, 1, "t"))
    yield one * 40_000
    wrong = b"".join(request_chunks(SaslHandshakeRequest("NONE"), 1, 1, "t"))
    yield wrong + one * 10_000


@pytest.mark.parametrize("sent", list(frames()), ids=["large", "smaller", "many", "after a refusal"])
def test_nobody_costs_more_than_64_kib(attacked: Attacked, sent: bytes) -> None:
    """Bytes that are kept, at each look; others get in meanwhile."""
    server = attacked.broker.running.server
    most = 0

    def look() -> None:
        nonlocal most
        for one in list(server.connections.values()):
            most = max(most, len(one._rest) + (0 if one._large is None else len(one._large)))

    handle = Connection._on_readable

    def looking(connection: Connection) -> None:
        handle(connection)
        look()

    with contextlib.ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_on_readable", looking)
        for _ in range(20):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", attacked.ports["LONG"]), timeout=PATIENCE_S))
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                left = sent
                while left:
                    left = left[sock.send(left) :]
        attacked.is_well()
        attacked.broker.on_loop(look)
    assert 0 < most <= MAX_HELD_BYTES


def test_api_versions_is_answered_once(attacked: Attacked) -> None:
    """As with Kafka; after an error, and once authenticated, it may be asked again."""
    with attacked.client("LONG") as client:
        for _ in range(50):
            assert client.ask(ApiVersionsRequest("", ""), 3).error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(ApiVersionsRequest("x", "1"), 3).error_code == 0
        assert plain(client, "alice").error_code == 0
        for _ in range(3):
            assert client.ask(ApiVersionsRequest("x", "1"), 3).error_code == 0
    with attacked.client("LONG") as client:
        assert client.ask(ApiVersionsRequest("x", "1"), 3).error_code == 0
        client.send(ApiVersionsRequest("x", "1"), 3)
        assert client.closed()
