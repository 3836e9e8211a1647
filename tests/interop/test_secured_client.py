"""The client at listeners of Apache Kafka 3.9.1 with TLS and SASL: what is right works, what is wrong is named, nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

import tidelog
from tests.certificates import PASSWORD, Authority
from tests.cli.conftest import run
from tests.identity_provider import IdentityProvider
from tests.interop.gate import first_of
from tests.interop.secured_properties import (
    ALICE,
    BOB,
    MECHANISMS,
    MODULES,
    PROTOCOLS,
    SESSION_S,
    authority_of,
    secured_properties,
)
from tests.interop.secured_uses import TRIES, uses
from tests.kafka import Kafka391
from tests.kafka.java import free_port, wait_until
from tests.kafka.secured_clients import CLIENTS, answers, kind
from tests.patience import PATIENCE_S
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.listener_probe import sasl_mechanisms, wants_tls
from tidelog.clock import SystemClock
from tidelog.errors import AuthenticationError, BrokerUnreachableError, InvalidArgumentError, SecurityProtocolError, TidelogError
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.security.scram import SCRAM_IDS, new_credential
from tidelog.security.secret import Secret
from tidelog.storage.log_manager import LogManager
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

REFUSALS = (AuthenticationError, SecurityProtocolError)
JAVA = ("java-4.2.0", "java-3.9.1")


class Secured(NamedTuple):
    ports: dict[str, str]
    authority: Authority
    provider: IdentityProvider

    def tls(self, **more: str) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.ca)} | {
            name.replace("_", "."): value for name, value in more.items()
        }


def jaas(mechanism: str, name: str = ALICE, password: str = PASSWORD) -> str:
    if mechanism == "OAUTHBEARER":
        return f'{MODULES[mechanism]} required unsecuredLoginStringClaim_sub="{name}";'
    return f'{MODULES[mechanism]} required username="{name}" password="{password}";'


def sasl(mechanism: str, protocol: str = "SASL_PLAINTEXT", **who: str) -> dict[str, str]:
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, **who)}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured-client")
    authority = authority_of(folder / "tls")
    provider = IdentityProvider(authority.folder)
    numbers = {name: free_port() for name in PROTOCOLS}
    kafka = Kafka391(folder)
    kafka.properties |= secured_properties(authority, {"PLAINTEXT": kafka.port, **numbers}, kafka.controller_port)
    with kafka:
        kafka.create_topic("events")
        make_scram_users(kafka.bootstrap)
        yield Secured(
            {"data": str(kafka.data), "PLAINTEXT": kafka.bootstrap, **{name: f"127.0.0.1:{n}" for name, n in numbers.items()}},
            authority,
            provider,
        )


def make_scram_users(bootstrap: str) -> None:
    """Make Alice and Bob, with a password for each mechanism."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        made = [UserScramCredentialUpsertion(name, info, PASSWORD.encode()) for name in (ALICE, BOB)]
        for done in admin.alter_user_scram_credentials(made).values():
            done.result(PATIENCE_S)


@pytest.fixture(scope="module")
def ours(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """`tidelog serve` with the same `server.properties`, but for its ports: its addresses by listener."""
    folder = tmp_path_factory.mktemp("secured-tidelog")
    with LogManager(folder / "data", SystemClock()) as manager:
        records = [
            UserScramCredentialRecord(name, number, made.salt, made.stored_key, made.server_key, made.iterations)
            for mechanism, number in SCRAM_IDS.items()
            for name, made in ((name, new_credential(mechanism, Secret(PASSWORD))) for name in (ALICE, BOB))
        ]
        manager.metadata.commit(records)
        manager.create_topic("events", 1)
    ports = {name: free_port() for name in ("PLAINTEXT", *PROTOCOLS)}
    properties = secured_properties(secured.authority, ports, free_port()) | {"log.dirs": str(folder / "data")}
    written = folder / "server.properties"
    written.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [sys.executable, "-m", "tidelog", "serve", "--config", str(written)]
    with (folder / "serve.err").open("w") as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), (folder / "serve.err").read_text()
        yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    log = (folder / "serve.err").read_text()
    assert "Traceback" not in log
    assert PASSWORD not in log


def used(address: str, config: dict[str, str]) -> None:
    """Write a record, and read it, by a connection of a configuration."""
    with tidelog.connect(address, **config) as client:
        assert "events" in client.topics()
        produced = client.produce("events", b"x" * 100_000)
        assert produced.offset in [record.offset for record in client.read("events")]


@contextmanager
def not_tried_again() -> Iterator[None]:
    """Fail where the client connects once more after a refusal; a broker that cannot be reached may be tried again."""
    refusals: list[TidelogError] = []
    again: list[str] = []  # A command reports an error that is raised here as its own.

    def spied(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(connection: Connection, *args: Any, **how: Any) -> Any:
            if method.__name__ == "__init__" and refusals:
                again.append(f"tried again: {refusals[-1]}")
            try:
                return method(connection, *args, **how)
            except REFUSALS as error:
                refusals.append(error)
                raise

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("__init__", "ask", "send", "receive"):
            patch.setattr(Connection, name, spied(getattr(Connection, name)))
        yield
    assert refusals
    assert not again


def refused(address: str, config: dict[str, str]) -> TidelogError:
    """A refusal, and none that was taken from a broker's silence: that would last twice as long as any event is awaited."""
    began = time.monotonic()
    with (
        not_tried_again(),
        pytest.raises(REFUSALS) as caught,
        tidelog.connect(address, timeout_ms=2 * 1000 * PATIENCE_S, **config) as client,
    ):
        client.topics()
    assert time.monotonic() - began < PATIENCE_S
    assert PASSWORD not in str(caught.value)
    assert "wrong-one" not in str(caught.value)
    return caught.value


def test_tls(secured: Secured) -> None:
    used(secured.ports["SSL"], secured.tls())
    used(secured.ports["SSL"], secured.tls(ssl_enabled_protocols="TLSv1.2"))
    ca = secured.authority.ca
    used(secured.ports["SSL"], {"security.protocol": "ssl", "ssl.ca.location": str(ca)})
    used(secured.ports["SSL"], {"security.protocol": "SSL", "ssl.truststore.certificates": ca.read_text().replace("\n", " ")})


def test_a_client_with_a_certificate(secured: Secured) -> None:
    authority = secured.authority
    address = secured.ports["MTLS"]
    used(address, secured.tls(ssl_keystore_location=str(authority.folder / "client.pem"), ssl_keystore_type="PEM"))
    used(address, secured.tls(ssl_keystore_location=str(authority.locked("client")), ssl_key_password=PASSWORD))
    key, chain = ((authority.folder / f"client.{kind}").read_text() for kind in ("key", "crt"))
    used(address, secured.tls(ssl_keystore_key=key, ssl_keystore_certificate_chain=chain))
    assert "certificate" in str(refused(address, secured.tls()))
    assert "certificate" in str(refused(address, secured.tls(ssl_enabled_protocols="TLSv1.2")))
    strange = Authority(authority.folder / "strange").sign("client")
    assert "refuses the client's certificate" in str(refused(address, secured.tls(ssl_keystore_location=str(strange))))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl(secured: Secured, mechanism: str) -> None:
    used(secured.ports["SASL_PLAINTEXT"], sasl(mechanism))
    used(secured.ports["SASL_SSL"], secured.tls() | sasl(mechanism, "SASL_SSL"))
    if mechanism == "OAUTHBEARER":
        return
    words = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": ALICE,
        "sasl.password": PASSWORD,
    }
    used(secured.ports["SASL_PLAINTEXT"], words)
    for who in ({"password": "wrong-one"}, {"name": "nobody"}):
        error = refused(secured.ports["SASL_PLAINTEXT"], sasl(mechanism, **who))
        assert isinstance(error, AuthenticationError)
        assert mechanism in str(error)


def test_a_refused_token(secured: Secured) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    error = refused(secured.ports["SASL_PLAINTEXT"], config | {"oauth_cb": lambda _: ("wrong-one.x.", 1.0)})  # type: ignore[dict-item]
    assert isinstance(error, AuthenticationError)


def test_what_does_not_fit(secured: Secured) -> None:
    ports = secured.ports
    for name in ("PLAINTEXT", "SASL_PLAINTEXT"):
        assert "the port does not speak TLS" in str(refused(ports[name], secured.tls()))
    for name in ("SSL", "SASL_SSL"):
        assert "the port requires TLS" in str(refused(ports[name], {}))
        assert "the port requires TLS" in str(refused(ports[name], sasl("PLAIN")))
    assert "SASL_PLAINTEXT" in str(refused(ports["SASL_PLAINTEXT"], {}))
    assert "security.protocol=SASL_SSL" in str(refused(ports["SASL_SSL"], secured.tls()))
    for name, config in (("PLAINTEXT", sasl("PLAIN")), ("SSL", secured.tls() | sasl("PLAIN", "SASL_SSL"))):
        assert "the port does not use SASL" in str(refused(ports[name], config))
    error = refused(ports["SHORT"], sasl("OAUTHBEARER"))
    assert (
        "SASL mechanism is not enabled on the listener: found PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, expected OAUTHBEARER"
        in str(error)
    )


def test_who_is_not_trusted(secured: Secured) -> None:
    strange = Authority(secured.authority.folder / "other")
    address = secured.ports["SSL"]
    assert "not signed by a trusted authority" in str(refused(address, secured.tls(ssl_truststore_location=str(strange.ca))))
    assert "not signed by a trusted authority" in str(refused(address, {"security.protocol": "SSL"}))
    with pytest.raises(InvalidArgumentError, match="keytool"):
        tidelog.connect(address, **secured.tls(ssl_truststore_type="JKS"))


def test_a_session_that_ends(secured: Secured) -> None:
    """The broker ends connections whose session is over; one that is renewed in time goes on."""
    wait_until(lambda: goes_on_if_renewed(secured.ports["SHORT"]), "sessions to be renewed in time")


def goes_on_if_renewed(address: str) -> bool:
    """Renew a session until one and a half are over. Return False if this machine was too slow to renew it in time."""
    renewed = time.monotonic()
    with tidelog.connect(address, **sasl("SCRAM-SHA-256")) as client, client.cluster.connection_to_any() as held:
        began = time.monotonic()
        assert held._renewal_s < float("inf"), "the broker says for how long"
        while time.monotonic() < began + 1.5 * SESSION_S:
            time.sleep(1.2)  # Kafka refuses to authenticate twice within a second
            due, held._renewal_s = held._renewal_s, 0.0
            before, renewed = renewed, time.monotonic()
            try:
                held.ask(MetadataRequest(), 1, MetadataResponse)
            except BrokerUnreachableError:
                assert time.monotonic() > before + SESSION_S, "it was renewed in time"
                return False
            assert held._renewal_s > due
            client.latest_offsets([("events", 0)])
    return True


def test_commands(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in (secured.tls() | sasl("PLAIN", "SASL_SSL")).items()))
    address = secured.ports["SASL_SSL"]
    with tidelog.connect(secured.ports["PLAINTEXT"]) as client:
        client.produce("events", b"one", timestamp=1_373_414_400_000)
    for command in (
        ["stat", address],
        ["cat", address, "events"],
        ["find", address, "events", "--at", "2013-07-10"],
        ["groups", "list", address],
        ["groups", "lag", address],
    ):
        ran = run(*command, "--config", str(config))
        assert (ran.exit_code, ran.error if ran.exit_code else "") == (0, ""), command
        ran = run(*command, "--config", str(config), "-X", "sasl.mechanism=SCRAM-SHA-256")
        assert ran.exit_code == 1
        assert PASSWORD not in ran.stderr + ran.stdout
        assert "sasl.jaas.config is not for SCRAM-SHA-256" in ran.error


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_commands_without_a_configuration(secured: Secured, name: str, tmp_path: Path) -> None:
    address = secured.ports[name]
    said = "the port requires SASL authentication" if name == "SASL_PLAINTEXT" else "the port requires TLS"
    with LogManager(tmp_path / "ours", SystemClock()) as manager:
        manager.create_topic("events", 1)
    for command in (
        ["handover", str(tmp_path / "ours"), "--to", secured.ports["data"], "--bootstrap-server", address],
        ["stat", address],
        ["cat", address, "events"],
        ["find", address, "events", "--at", "now"],
        ["groups", "list", address],
    ):
        with not_tried_again():
            ran = run(*command)
        assert (ran.exit_code, said in ran.error) == (1, True), (command, ran.error)


def test_a_plain_port_wants_neither(secured: Secured) -> None:
    host, port = secured.ports["PLAINTEXT"].split(":")
    assert (wants_tls((host, int(port))), sasl_mechanisms((host, int(port)))) == (False, None)
    host, port = secured.ports["SASL_PLAINTEXT"].split(":")
    assert sorted(sasl_mechanisms((host, int(port)), PATIENCE_S * 1000) or []) == sorted(MECHANISMS)


def test_a_scan(secured: Secured) -> None:
    with tidelog.connect(secured.ports["PLAINTEXT"]) as client:
        client.produce("events", b"scanned")
    rows = tidelog.scan(secured.ports["SASL_SSL"], "events", config=secured.tls() | sasl("SCRAM-SHA-512", "SASL_SSL")).read_all()
    assert b"scanned" in rows["value"].to_pylist()


def test_names_are_compared(secured: Secured) -> None:
    """A certificate for a different host: a listener of openssl's with one that names no address of this machine."""
    other = secured.authority.sign("elsewhere", hosts=("broker.example",))
    port = free_port()
    with subprocess.Popen(
        ["openssl", "s_server", "-accept", str(port), "-cert", other, "-key", other, "-quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    error = refused(f"127.0.0.1:{port}", secured.tls())
                    break
                except TidelogError:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        finally:
            server.kill()
    assert "for a different host" in str(error)


@pytest.mark.parametrize(
    "kind_of_client",
    [
        *sorted({*CLIENTS} - {*JAVA}),
        *first_of(*JAVA, why="the same uses by the older client; Kafka's tools of 3.9.1 are secured in test_acls"),
    ],
)
def test_clients_of_others(secured: Secured, ours: dict[str, str], kind_of_client: str) -> None:
    """Each client of each language gets from Tidelog what it gets from Kafka: it works, or fails for the same reason."""
    folder = secured.authority.folder
    sides = {"kafka": secured.ports, "tidelog": ours}
    both = [use for side, addresses in sides.items() for use in uses(side, addresses, folder, secured.provider)]
    found = answers(kind_of_client, both)
    if not found:
        pytest.skip(f"{kind_of_client} is not on the PATH")
    expected = {one.name: one.expected for one in TRIES}
    wrong = []
    for (client, name), said in found.items():
        side, _, tried = name.partition(":")
        other = found[client, f"kafka:{tried}"]
        # Of a connection that ends, again and again, a client says the one or the other; kafka-python always the same.
        if side == "kafka" or expected[tried] != "refused" or client == "kafka-python":
            continue
        # Kafka's end may overtake its alert, where a certificate is refused.
        if kind(said) != kind(other) and (kind(said), kind(other)) != ("certificate", "unreachable"):
            wrong.append(f"{client}, {tried}: {said!r}, by Kafka {other!r}")
    assert not wrong, "\n".join(wrong)
    odd = [(who, said) for who, said in found.items() if (said == "ok") != (expected[who[1].partition(":")[2]] == "works")]
    assert not odd
