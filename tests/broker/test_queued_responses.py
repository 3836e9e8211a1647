"""What is sent to a socket, or closes it, while a response for it is still queued: the response goes first."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.test_answer_rounds import busy
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

    def end_round(self) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker) -> RunningBroker:
    monkeypatch.setattr("tidelog.broker.net.answer_rounds.kernel.SendQueue", lambda _: Paused(False))
    return start_broker()


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[list[RawClient]]:
    """Each has a response that is queued."""
    with ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(CLIENTS)]
        with busy(broker):
            for client in clients:
                client.send(ApiVersionsRequest(), 0)
        received = [0]
        while received[0] < CLIENTS:
            received = broker.on_loop(lambda: [sum(one._queued > 0 for one in connections(broker))])
        yield clients


def connections(broker: RunningBroker) -> list[Connection]:
    return list(broker.running.server.connections.values())


def each(broker: RunningBroker, call: Callable[[Connection], object]) -> None:
    broker.on_loop(lambda: [call(one) for one in connections(broker)])


def check_rest(client: RawClient, expected: bytes) -> None:
    """The queued response, then `expected`, then the end of the connection."""
    assert client.receive().api_keys
    client.socket.shutdown(socket.SHUT_WR)
    data = bytearray()
    while part := client.socket.recv(1 << 20):
        data += part
    assert bytes(data) == expected


def test_a_small_response_that_is_sent_at_once(broker: RunningBroker, clients: list[RawClient]) -> None:
    each(broker, lambda one: one._write_now([b"small"], 5))
    for client in clients:
        check_rest(client, b"small")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_large_response(
    monkeypatch: pytest.MonkeyPatch, broker: RunningBroker, clients: list[RawClient], is_shared: bool
) -> None:
    """Also if a thread sends it."""
    monkeypatch.setattr(Turns, "are_shared", is_shared)
    each(broker, lambda one: one._write([bytes(MORE_BYTES)], MORE_BYTES))
    for client in clients:
        check_rest(client, bytes(MORE_BYTES))


@pytest.mark.parametrize("size", [5, MORE_BYTES])
def test_a_response_after_a_full_socket(broker: RunningBroker, clients: list[RawClient], size: int) -> None:
    """The socket takes nothing until the client reads."""
    filled = []

    def fill(one: Connection) -> None:
        one._answers.settle(one._queued)
        filled.append(0)
        while True:
            try:
                filled[-1] += one._socket.send(bytes(1 << 16))
            except BlockingIOError:
                break
        one._put([b"queued"], 6)
        one._write([b"x" * size], size)

    each(broker, fill)
    for client, before in zip(clients, filled, strict=True):
        check_rest(client, bytes(before) + b"queued" + b"x" * size)


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
