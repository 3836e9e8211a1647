"""A connection that is closed while its client still sends: the client reads all answers, and then the end."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.certificates import Authority
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.net.lingering_close import may_close
from tidelog.broker.net.tls_socket import TlsSocket
from tidelog.security.tls_context import ContextSource

ANSWERS = b"answer" * 1000


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The broker's socket and a client's. Of TCP: others are not reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        ours, _ = listening.accept()
        client.settimeout(PATIENCE_S)
        with ours:
            yield ours, client


def answered_and_closed(ours: socket.socket, client: socket.socket) -> bytes:
    """Answer, close when one may, though a request comes once more just then; return what the client reads up to the end."""
    scratch = memoryview(bytearray(65536))
    client.sendall(b"request" * 1000)
    assert ours.send(ANSWERS) == len(ANSWERS)
    wait_until(lambda: may_close(ours, scratch), "the client's system to know of the end")
    client.sendall(b"one more")
    ours.close()
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_late_request_takes_no_answer_along_and_resets_nothing(connected: tuple[socket.socket, socket.socket]) -> None:
    ours, client = connected
    ours.setblocking(False)
    assert answered_and_closed(ours, client) == ANSWERS


def test_with_tls_too(connected: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.sign("broker", hosts=("127.0.0.1",)))
    trusting = ssl.create_default_context(cafile=authority.ca)

    class Source:
        def get(self) -> ssl.SSLContext:
            return server

    ours = TlsSocket(connected[0], cast("ContextSource", Source()))
    client = trusting.wrap_socket(connected[1], server_hostname="127.0.0.1", do_handshake_on_connect=False)
    shaken = threading.Thread(target=client.do_handshake)
    shaken.start()
    while ours.step() is not None:
        pass
    shaken.join()
    connected_plain = ours._plain
    connected_plain.setblocking(False)
    with client:
        assert answered_and_closed(cast("socket.socket", ours), client) == ANSWERS
