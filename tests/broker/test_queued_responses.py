"""What is sent to a socket, or closes it, while a response for it is still queued: the response goes first."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.test_answer_rounds import busy
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tidelog.broker.net.turns import Turns
from tidelog.broker.server.connection import Connection
from tidelog.records import kernel
from tidelog.wire.messages.api_versions import ApiVersionsRequest

MORE_BYTES = 3_000_000
CLIENTS = 4


class Paused(kernel.SendQueue):
    """A queue whose thread gets no processor."""

    def flush(self) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.sign("broker", hosts=("127.0.0.1",))
    return authority


@pytest.fixture(params=["plain", "tls"])
def context(request: pytest.FixtureRequest, authority: Authority) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=str(authority.ca)) if request.param == "tls" else None


@pytest.fixture
def broker(
    monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker, authority: Authority, context: ssl.SSLContext | None
) -> RunningBroker:
    monkeypatch.setattr("tidelog.broker.net.answer_rounds.kernel.SendQueue", lambda _: Paused(False))
    if context is None:
        return start_broker()
    key = str(authority.folder / "broker.pem")
    return start_broker(listeners="SSL://127.0.0.1:0", ssl_keystore_type="PEM", ssl_keystore_location=key)


@pytest.fixture
def clients(broker: RunningBroker, context: ssl.SSLContext | None) -> Iterator[list[RawClient]]:
    """Each has a response that is queued."""
    with ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(CLIENTS)]
        for client in clients:
            if context is not None:
                client.socket = stack.enter_context(context.wrap_socket(client.socket, server_hostname="127.0.0.1"))
        while broker.on_loop(lambda: [getattr(one, "_is_shaken", True) for one in connections(broker)] != [True] * CLIENTS):
            pass
        with busy(broker):
            for client in clients:
                client.send(ApiVersionsRequest(), 0)
        while broker.on_loop(lambda: not all(one._queued for one in connections(broker))):
            pass
        yield clients


def connections(broker: RunningBroker) -> list[Connection]:
    return list(broker.running.server.connections.values())


def each(broker: RunningBroker, call: Callable[[Connection], object]) -> None:
    broker.on_loop(lambda: [call(one) for one in connections(broker)])


def check(client: RawClient, expected: bytes) -> None:
    """The queued response, then `expected`."""
    assert client.receive().api_keys
    assert client._read(len(expected)) == expected


def test_a_small_response_that_is_sent_at_once(broker: RunningBroker, clients: list[RawClient]) -> None:
    each(broker, lambda one: one._write_now([b"small"], 5))
    for client in clients:
        check(client, b"small")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_large_response(
    monkeypatch: pytest.MonkeyPatch, broker: RunningBroker, clients: list[RawClient], is_shared: bool
) -> None:
    """Also if a thread sends it."""
    monkeypatch.setattr(Turns, "are_shared", is_shared)
    each(broker, lambda one: one._write([bytes(MORE_BYTES)], MORE_BYTES))
    for client in clients:
        check(client, bytes(MORE_BYTES))


@pytest.mark.parametrize("size", [0, 5, MORE_BYTES])
def test_a_response_after_a_full_socket(broker: RunningBroker, clients: list[RawClient], size: int) -> None:
    """The socket takes nothing until the client reads; then the connection goes on."""
    filled = []

    def fill(one: Connection) -> None:
        one._is_settled()
        filled.append(0)
        while not one._unsent:
            for _ in range(3):
                one._put([bytes(10_000)], 10_000)
            one._is_settled()
            filled[-1] += 30_000
        if size:
            one._write([b"x" * size], size)

    each(broker, fill)
    for client, before in zip(clients, filled, strict=True):
        check(client, bytes(before) + b"x" * size)
        client.send(ApiVersionsRequest(), 0)
        while not select.select([client.socket], [], [], 0.01)[0]:
            each(broker, Connection._is_settled)
        assert client.receive().api_keys


def test_a_peer_that_sends_no_more(broker: RunningBroker, clients: list[RawClient]) -> None:
    """But reads: it gets all of its responses, although its socket was full, and then the end."""
    are_put, have_ended = threading.Event(), threading.Event()

    def read_the_end() -> None:
        for one in connections(broker):
            for _ in range(1000):
                one._put([bytes(10_000)], 10_000)
        are_put.set()
        assert have_ended.wait(PATIENCE_S)
        for one in connections(broker):
            one._receive()

    broker._loop.call_soon_threadsafe(read_the_end)
    assert are_put.wait(PATIENCE_S)
    for client in clients:
        socket.socket.shutdown(client.socket, socket.SHUT_WR)
    have_ended.set()
    for client in clients:
        check(client, bytes(10_000_000))
        assert client.closed()


@pytest.mark.parametrize("call", [Connection.close, Connection.end, lambda one: one.refuse("a test")])
def test_the_end_of_a_connection(broker: RunningBroker, clients: list[RawClient], call: Callable[[Connection], None]) -> None:
    each(broker, call)
    for client in clients:
        assert client.receive().api_keys
        assert client.closed()


def test_the_end_of_the_broker(broker: RunningBroker, clients: list[RawClient]) -> None:
    broker.stop()
    for client in clients:
        assert client.receive().api_keys
        assert client.closed()
