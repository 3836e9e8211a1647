"""A broker's listeners with TLS and SASL: who may ask what, when, and as whom. Our own client, and sockets that misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import tidelog
from tests.certificates import PASSWORD, Authority
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.peers.channel import Channel
from tidelog.broker.requests.listeners import is_of_security, parse_listeners
from tidelog.broker.server.broker_server import HANDSHAKE_THREADS, BrokerServer
from tidelog.broker.server.secured.authentication import MAX_BYTES
from tidelog.broker.serving_broker import ServingBroker
from tidelog.broker.settings.listener_security import ListenerSecurity
from tidelog.errors import (
    AuthenticationError,
    BrokerUnreachableError,
    InvalidArgumentError,
    SecurityProtocolError,
    TidelogError,
)
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.security.access import Access
from tidelog.security.client_config import client_config
from tidelog.security.scram import SCRAM_IDS, new_credential
from tidelog.security.secret import Secret
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENERS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "MBOTH": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "LONG": "SASL_PLAINTEXT",
}


LONG_S = 3600
"""No session ends sooner but those of SHORT."""


class Secured:
    def __init__(self, folder: Path, authority: Authority) -> None:
        self.authority = authority
        users = f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_bob="other";'
        given = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.folder / "broker.pem"),
            "ssl.truststore.location": str(authority.ca),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U,DEFAULT",
            "listener.name.mboth.ssl.client.auth": "required",
            "listener.name.mboth.ssl.principal.mapping.rules": "RULE:^CN=nobody$/nobody/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.short.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.short.connections.max.reauth.ms": "3000",
            "listener.name.long.connections.max.reauth.ms": str(1000 * LONG_S),
            **{
                f"listener.name.{name.lower()}.plain.sasl.jaas.config": users
                for name in ("SASL", "BOTH", "MBOTH", "SHORT", "LONG")
            },
        }
        self.broker = tidelog.Broker(folder, **given)
        self.broker.start()
        self.ports = {one.name: one.port for one in self.broker._listeners}

    def at(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def tls(self, **more: str) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.ca)} | {
            name.replace("_", "."): value for name, value in more.items()
        }


def sasl(
    mechanism: str = "PLAIN", name: str = "alice", password: str = PASSWORD, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        text = f'{module} required unsecuredLoginStringClaim_sub="{name}";'
        return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": text}
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "tls")
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    authority.sign("client", subject="/O=Tides/CN=client")
    with tidelog.Broker(folder / "data"):
        pass
    from tidelog.clock import SystemClock
    from tidelog.storage.log_manager import LogManager

    with LogManager(folder / "data", SystemClock()) as manager:
        records = []
        for mechanism, number in SCRAM_IDS.items():
            one = new_credential(mechanism, Secret(PASSWORD))
            records.append(UserScramCredentialRecord("alice", number, one.salt, one.stored_key, one.server_key, one.iterations))
        manager.metadata.commit(records)
    made = Secured(folder / "data", authority)
    with tidelog.connect(made.at("OPEN")) as client:
        client.produce("events", b"first")
    yield made
    made.broker.stop()


def used(address: str, config: Mapping[str, str], size: int = 300_000) -> None:
    with tidelog.connect(address, **config) as client:
        produced = client.produce("events", bytes(range(250)) * (size // 250))
        read = [record for record in client.read("events") if record.offset == produced.offset]
        assert [len(one.value or b"") for one in read] == [size // 250 * 250]


def test_tls(secured: Secured) -> None:
    used(secured.at("TLS"), secured.tls())
    used(secured.at("TLS"), secured.tls(ssl_enabled_protocols="TLSv1.2"))
    with tidelog.connect(secured.at("TLS"), **secured.tls()) as client:
        values = [bytes([number]) * 1_000_000 for number in range(8)]
        client.produce_many("events", [tidelog.NewRecord(value) for value in values], batch_bytes=900_000)
        assert [one.value for one in client.read("events") if one.value and len(one.value) == 1_000_000] == values


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_sasl(secured: Secured, mechanism: str) -> None:
    used(secured.at("SASL"), sasl(mechanism))
    used(secured.at("BOTH"), secured.tls() | sasl(mechanism, protocol="SASL_SSL"))
    if mechanism == "OAUTHBEARER":
        return
    said = set()
    for who in ({"password": "wrong"}, {"name": "nobody"}):
        with pytest.raises(AuthenticationError) as caught:
            tidelog.connect(secured.at("SASL"), **sasl(mechanism, **who))
        said.add(str(caught.value))
    assert len(said) == 1, "who is known is not said"


def test_a_client_with_a_certificate(secured: Secured) -> None:
    client = str(secured.authority.folder / "client.pem")
    used(secured.at("MTLS"), secured.tls(ssl_keystore_location=client))
    for config in (secured.tls(), secured.tls(ssl_enabled_protocols="TLSv1.2")):
        with pytest.raises(AuthenticationError, match="certificate"):
            tidelog.connect(secured.at("MTLS"), **config)
    strange = Authority(secured.authority.folder / "strange").sign("client")
    with pytest.raises(AuthenticationError, match="refuses the client's certificate"):
        tidelog.connect(secured.at("MTLS"), **secured.tls(ssl_keystore_location=str(strange)))


def test_where_sasl_says_who_it_is_a_certificate_needs_no_rule(secured: Secured) -> None:
    """It has to be trusted, and what its name is does not matter: as with Kafka."""
    client = {"ssl.keystore.location": str(secured.authority.folder / "client.pem")}
    both = secured.tls() | sasl(protocol="SASL_SSL")
    used(secured.at("MBOTH"), both | client)
    with pytest.raises(AuthenticationError):
        tidelog.connect(secured.at("MBOTH"), **both)


@pytest.mark.parametrize("end", ["1e300", "1e400", "1" + 400 * "0"])
def test_a_token_without_an_end(secured: Secured, end: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever number a token claims: it is good, as with Kafka, and nothing fails."""
    parts = ('{"alg":"none"}', f'{{"sub":"alice","iat":1,"exp":{end}}}')
    token = ".".join(base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in parts) + "."
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    with tidelog.connect(secured.at("SASL"), **config, oauth_cb=lambda _: (token, 0.0)) as client:  # type: ignore[arg-type]
        assert "events" in client.topics()
    assert "Traceback" not in caplog.text


def test_a_client_that_is_refused_reads_why(secured: Secured) -> None:
    """With TLS 1.3 it sends its first request before it hears: the end that it gets must not take the alert along."""
    strange = Authority(secured.authority.folder / "strange-one").sign("client")
    context = ssl.create_default_context(cafile=secured.authority.ca)
    context.load_cert_chain(strange)
    for _ in range(30):
        with (
            socket.create_connection(("127.0.0.1", secured.ports["MTLS"]), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(bytes(100))
            with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
                wrapped.recv(1)


def test_what_does_not_fit(secured: Secured) -> None:
    for name, config, said in (
        ("OPEN", secured.tls(), "does not speak TLS"),
        ("SASL", secured.tls(), "does not speak TLS"),
        ("TLS", {}, "requires TLS"),
        ("BOTH", sasl(), "requires TLS"),
        ("SASL", {}, "requires SASL authentication"),
        ("BOTH", secured.tls(), "requires SASL authentication"),
        ("OPEN", sasl(), "does not use SASL"),
        ("SHORT", sasl("SCRAM-SHA-256"), "SASL mechanism is not enabled on the listener: found PLAIN"),
    ):
        with pytest.raises(SecurityProtocolError, match=said), tidelog.connect(secured.at(name), **config) as client:
            client.topics()


def test_a_session_is_renewed(secured: Secured) -> None:
    with tidelog.connect(secured.at("LONG"), **sasl()) as client, client.cluster.connection_to_any() as held:
        due = held._renewal_s
        assert due < time.monotonic() + LONG_S
        held._renewal_s = 0.0
        held.ask(MetadataRequest(), 1, MetadataResponse)
        assert due < held._renewal_s < float("inf")


def test_a_session_that_is_not_renewed_ends(secured: Secured) -> None:
    with tidelog.connect(secured.at("SHORT"), **sasl()) as client, client.cluster.connection_to_any() as held:
        assert held._renewal_s < float("inf")
        held._renewal_s = float("inf")
        until = time.monotonic() + PATIENCE_S
        with pytest.raises(BrokerUnreachableError):
            while time.monotonic() < until:
                held.ask(MetadataRequest(), 1, MetadataResponse)


def test_librdkafka(secured: Secured) -> None:
    for name, config in (
        ("TLS", secured.tls()),
        ("BOTH", secured.tls() | sasl("SCRAM-SHA-256", protocol="SASL_SSL")),
        ("SHORT", sasl()),
    ):
        words = {key.replace("sasl.mechanism", "sasl.mechanisms"): value for key, value in config.items()}
        admin = AdminClient({"bootstrap.servers": secured.at(name), "log_level": 0, **words})
        assert "events" in admin.list_topics(timeout=PATIENCE_S).topics


# --- another broker


def reached(secured: Secured, name: str, config: dict[str, str]) -> Channel:
    access = Access(client_config(config))
    host, port = secured.at(name).split(":")
    return Channel(
        host, int(port), client_id="t", timeout_s=PATIENCE_S, connect_timeouts_s=(PATIENCE_S, PATIENCE_S), access=access
    )


def test_a_channel_is_secured(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """What brokers and controllers are reached by: each protocol and mechanism, large answers, sessions that are renewed."""
    monkeypatch.setattr("tidelog.broker.server.secured.authentication.REAUTHENTICATION_S", 0.0)  # Three in a row.
    client = {"ssl.keystore.location": str(secured.authority.folder / "client.pem")}
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    bearer = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="x";'}

    async def ask() -> None:
        for name, config in (
            ("TLS", secured.tls()),
            ("MTLS", secured.tls() | client),
            ("SASL", sasl()),
            ("SASL", sasl("SCRAM-SHA-512")),
            ("BOTH", secured.tls() | sasl("SCRAM-SHA-256", protocol="SASL_SSL")),
            ("BOTH", secured.tls() | {"security.protocol": "SASL_SSL"} | bearer),
        ):
            channel = reached(secured, name, config)
            answers = await asyncio.gather(*(channel.call(MetadataRequest(topics=None), version=1) for _ in range(20)))
            assert all("events" in [one.name for one in answer.topics] for answer in answers)
            channel.close()
        renewed = reached(secured, "LONG", sasl())
        for _ in range(3):
            await asyncio.gather(*(renewed.call(MetadataRequest(topics=None), version=1) for _ in range(20)))
            due, renewed._renewal_s = renewed._renewal_s, 0.0
            held = renewed._connection
            await asyncio.gather(*(renewed.call(MetadataRequest(topics=None), version=1) for _ in range(20)))
            assert due < renewed._renewal_s < float("inf")
            assert renewed._connection is held, "the same connection goes on"
        renewed.close()

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "config", "error", "said"),
    [
        ("SASL", sasl(password="wrong-one"), BrokerUnreachableError, "Invalid username or password"),
        ("TLS", {"security.protocol": "SSL"}, BrokerUnreachableError, "is not signed by a trusted authority"),
        ("MTLS", {}, BrokerUnreachableError, "certificate"),
        ("SHORT", sasl("SCRAM-SHA-256"), SecurityProtocolError, "SASL mechanism is not enabled on the listener: found PLAIN"),
        ("TLS", {"security.protocol": "PLAINTEXT"}, BrokerUnreachableError, "the port may require TLS"),
        ("OPEN", {}, TidelogError, "not speak TLS"),
        ("OPEN", sasl(), SecurityProtocolError, "does not use SASL"),
        ("SASL", {"security.protocol": "PLAINTEXT"}, BrokerUnreachableError, "the port may require SASL"),
    ],
)
def test_a_channel_says_what_is_wrong(
    secured: Secured, name: str, config: dict[str, str], error: type[TidelogError], said: str
) -> None:
    async def ask() -> None:
        channel = reached(secured, name, config or secured.tls())
        try:
            await channel.call(MetadataRequest(topics=None), version=1)
        finally:
            channel.close()

    with pytest.raises(error, match=said) as caught:
        asyncio.run(ask())
    assert PASSWORD not in str(caught.value)
    assert "wrong-one" not in str(caught.value)


# --- sockets that misbehave


def asked(sock: socket.socket, *frames: bytes) -> bytes:
    """Send frames; return all that comes until the other end closes."""
    sock.settimeout(PATIENCE_S)
    got = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(b"".join(frames))
        while piece := sock.recv(65536):
            got += piece
    return got


def frame(message: object, version: int) -> bytes:
    return b"".join(request_chunks(message, version, 1, "t"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sent",
    [
        frame(MetadataRequest(topics=None), 1),
        frame(SaslHandshakeRequest("PLAIN"), 1) + frame(MetadataRequest(topics=None), 1),
        frame(SaslHandshakeRequest("PLAIN"), 1) + frame(ApiVersionsRequest(), 0),
        frame(SaslHandshakeRequest("PLAIN"), 1) + frame(SaslHandshakeRequest("PLAIN"), 1),
        frame(SaslHandshakeRequest("GSSAPI"), 1),
        frame(SaslHandshakeRequest("PLAIN"), 0) + struct.pack(">i", 4) + b"\0a\0b",
        frame(SaslHandshakeRequest("PLAIN"), 0) + frame(MetadataRequest(topics=None), 1),
        struct.pack(">i", MAX_BYTES + 1),
        struct.pack(">i", 1) + b"x",
        struct.pack(">ihhih", 10, 36, 2, 1, -1),
        b"\x16\x03\x01\x02\0" + b"x" * 100,
    ],
)
def test_who_has_not_authenticated(secured: Secured, sent: bytes) -> None:
    """Nothing but the handshake is answered; the connection ends."""
    with socket.create_connection(("127.0.0.1", secured.ports["SASL"])) as sock:
        got = asked(sock, sent)
    assert b"events" not in got
    assert len(got) < 2_000


def test_clients_of_before_1_0(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["SASL"]), timeout=PATIENCE_S) as sock:
        token = f"\0alice\0{PASSWORD}".encode()
        sock.sendall(
            frame(SaslHandshakeRequest("PLAIN"), 0)
            + struct.pack(">i", len(token))
            + token
            + frame(MetadataRequest(topics=None), 1)
        )
        got = b""
        while b"events" not in got:
            piece = sock.recv(65536)
            assert piece, got
            got += piece


def test_half_open_ones_disturb_nobody(secured: Secured) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(secured.authority.ca)
    with contextlib.ExitStack() as opened:
        for number in range(200):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", secured.ports["TLS"])))
            if number % 2:
                out = ssl.MemoryBIO()
                with contextlib.suppress(ssl.SSLWantReadError):
                    context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
                hello = out.read()
                sock.sendall(hello if number % 4 == 1 else hello[:50])
        used(secured.at("TLS"), secured.tls())
        used(secured.at("SASL"), sasl())


def test_a_hello_that_is_too_large(secured: Secured) -> None:
    """OpenSSL would make room for 128 KiB that are only announced."""
    size = 100_000
    hello = b"\x16\x03\x01" + struct.pack(">H", 4) + b"\x01" + size.to_bytes(3, "big")
    with socket.create_connection(("127.0.0.1", secured.ports["TLS"])) as sock:
        assert asked(sock, hello) == b""
    used(secured.at("TLS"), secured.tls())


def test_a_hello_byte_by_byte(secured: Secured) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(secured.authority.ca)
    got, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(got, sent, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", secured.ports["TLS"]), timeout=PATIENCE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in sent.read():
                    sock.sendall(bytes([byte]))
                got.write(sock.recv(65536))
        assert tls.version() == "TLSv1.3"


def test_the_end_closes_those_whose_handshake_waits_for_a_thread(secured: Secured) -> None:
    pem = str(secured.authority.folder / "broker.pem")
    names = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.keystore.location": pem}
    with contextlib.ExitStack() as opened, tidelog.Broker(**names) as broker:  # type: ignore[arg-type]
        server: BrokerServer = broker.call(lambda running: running.server)

        def keep_busy(running: ServingBroker) -> None:
            for _ in range(HANDSHAKE_THREADS):
                server.handshakes.run(lambda: wait_until(lambda: server.handshakes._is_closed, "the end"), lambda _: None)

        broker.call(keep_busy)
        for _ in range(3):
            opened.enter_context(socket.create_connection(("127.0.0.1", broker.port))).sendall(b"no hello at all")
        wait_until(lambda: len(server.shaking) == 3, "three handshakes")
        broker.stop()
        assert [tls._plain.fileno() for tls in server.shaking] == [-1] * 3


def test_old_tls_is_refused(secured: Secured) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(secured.authority.ca)
    context.set_ciphers("AES128-SHA:@SECLEVEL=0")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        pytest.raises(OSError, match=r"(?i)ssl|reset"),
        socket.create_connection(("127.0.0.1", secured.ports["TLS"]), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost"),
    ):
        pass


def test_keys_are_renewed(secured: Secured) -> None:
    """A file that is replaced counts for the next connection."""
    folder = secured.authority.folder
    before = (folder / "broker.pem").read_bytes()

    def serial() -> object:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(secured.authority.ca)
        with (
            socket.create_connection(("127.0.0.1", secured.ports["TLS"]), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            found = wrapped.getpeercert()
            assert found is not None
            return found["serialNumber"]

    first = serial()
    renewed = secured.authority.sign("renewed", hosts=("localhost", "127.0.0.1"))
    (folder / "next.pem").write_bytes(renewed.read_bytes())
    (folder / "next.pem").replace(folder / "broker.pem")
    assert serial() != first
    (folder / "next.pem").write_bytes(before)
    (folder / "next.pem").replace(folder / "broker.pem")


def test_no_password_is_logged(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AuthenticationError):
        tidelog.connect(secured.at("SASL"), **sasl(password="a-wrong-password"))
    used(secured.at("SASL"), sasl())
    assert PASSWORD not in caplog.text
    assert "a-wrong-password" not in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listeners": "SSL://127.0.0.1:0"}, "needs ssl.keystore.location"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, "has no SASL mechanism"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "GSSAPI"}, "found GSSAPI"),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"},
            "plain.sasl.jaas.config",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "com.example.Validator",
            },
            "which is not supported here",
        ),
        ({"listeners": "OTHER://127.0.0.1:0"}, "listener OTHER has no protocol"),
    ],
)
def test_what_is_refused_at_the_start(tmp_path: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        tidelog.Broker(tmp_path, **given).start()


def test_a_mechanism_may_have_sessions_of_its_own() -> None:
    listeners = parse_listeners({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"})
    given = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connections.max.reauth.ms": "1000",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "3000",
        "scram-sha-256.connections.max.reauth.ms": "4000",
    }
    security = ListenerSecurity(listeners[0], given, lambda mechanism, name: None)
    assert security.sessions_ms == {"SCRAM-SHA-256": 2000, "SCRAM-SHA-512": 3000, "OAUTHBEARER": 2000}
    assert is_of_security("listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms")
