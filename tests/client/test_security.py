"""A port that wants TLS or SASL is recognised at once, by the words that such ports have for a plain request, or by none."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import run
from tests.patience import PATIENCE_S
from tidelog.client.connections.listener_probe import sasl_mechanisms, wants_tls
from tidelog.errors import BrokerUnreachableError, SecurityProtocolError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import response_chunks
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeResponse

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def port(serve: Serve) -> Iterator[str]:
    """A port on which each connection is served by a function, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                serve(connection)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    wanted = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", "req", "-x509", *wanted, "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


def tls(certificate: Path) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    return serve


def silent_tls(certificate: Path) -> Serve:
    """As Java's: what is no greeting is answered by the end of the connection."""
    speak = tls(certificate)

    def serve(connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) == b"\x16":
            speak(connection)

    return serve


def sasl(connection: socket.socket) -> None:
    """As a listener of SASL_PLAINTEXT: ApiVersions and SaslHandshake, nothing else."""
    with connection.makefile("rb") as asked:
        while size := asked.read(4):
            request = asked.read(int.from_bytes(size, "big"))
            answer = {
                18: ApiVersionsResponse(api_keys=[ApiVersion(MetadataRequest.API_KEY, 0, 12), ApiVersion(17, 0, 1)]),
                17: SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256", "PLAIN"]),
            }.get(int.from_bytes(request[:2], "big"))
            if answer is None:
                return
            connection.sendall(b"".join(response_chunks(answer, 0, int.from_bytes(request[4:8], "big"))))


def closing(connection: socket.socket) -> None:
    connection.recv(1)


def refused(address: str) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(SecurityProtocolError) as caught, tidelog.connect(address, timeout_ms=2 * PATIENCE_S * 1000) as client:
        client.topics()
    return str(caught.value), time.monotonic() - began


@pytest.mark.parametrize("kind", [tls, silent_tls])
def test_a_port_of_tls(kind: Callable[[Path], Serve], certificate: Path) -> None:
    with port(kind(certificate)) as address:
        said, seconds = refused(address)
        assert said.startswith("the port requires TLS (security.protocol=SSL or SASL_SSL)")
        assert address in said
        assert seconds < PATIENCE_S
        for command in (
            ("stat", address),
            ("cat", address, "t"),
            ("find", address, "t", "--at", "now"),
            ("groups", "list", address),
        ):
            ran = run(*command)
            assert (ran.exit_code, ran.error.startswith("tidelog: the port requires TLS")) == (1, True), ran.error


def test_a_port_of_sasl() -> None:
    with port(sasl) as address:
        said, seconds = refused(address)
        assert said.startswith("the port requires SASL authentication")
        assert "PLAIN, SCRAM-SHA-256" in said
        assert seconds < PATIENCE_S
        assert "requires SASL authentication" in run("stat", address).error


def test_ports_that_want_neither(tmp_path: Path) -> None:
    """A broker in plain text, one that closes whatever is sent, one that is away: of none it is said that it wants anything."""
    broker = RunningBroker(tmp_path / "data")
    try:
        host, number = broker.bootstrap_servers.rsplit(":", 1)
        assert (wants_tls((host, int(number))), sasl_mechanisms((host, int(number)))) == (False, None)
    finally:
        broker.stop()
    assert (wants_tls((host, int(number))), sasl_mechanisms((host, int(number)))) == (False, None)
    with port(closing) as address, pytest.raises(BrokerUnreachableError), tidelog.connect(address, timeout_ms=500) as client:
        client.topics()
