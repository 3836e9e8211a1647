"""How many connections there may be, and how fast they come: of all, of a listener, of an address."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.quotas.test_alter_client_quotas import altered, entry
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.broker.quotas.connection_quotas import ConnectionQuotas, as_address
from tidelog.broker.requests.listeners import parse_listeners
from tidelog.broker.server.connection_limits import protected_listener
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.metadata.image import QuotaKey
from tidelog.wire.messages.api_versions import ApiVersionsRequest

THREE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ONE://127.0.0.1:0,TWO://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ONE:PLAINTEXT,TWO:PLAINTEXT",
}


def port_of(broker: RunningBroker, name: str) -> int:
    return broker.on_loop(lambda: next(one.port for one in broker.node.listeners if one.name == name))


def connected(broker: RunningBroker, name: str) -> RawClient:
    return RawClient(("127.0.0.1", port_of(broker, name)))


def ask(client: RawClient) -> None:
    assert client.ask(ApiVersionsRequest("x", "1"), 3).error_code == 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def count(broker: RunningBroker) -> int:
    return broker.on_loop(lambda: len(broker.running.server.connections))


def test_a_listener_has_its_own_number_and_the_brokers_own_has_room(start_broker: StartBroker) -> None:
    broker = start_broker(**THREE, **{"listener.name.one.max.connections": 1, "max.connections": 3})
    first = connected(broker, "ONE")
    ask(first)
    second = connected(broker, "ONE")
    second.send(ApiVersionsRequest("x", "1"), 3)
    others = [connected(broker, "TWO") for _ in range(2)]
    for client in others:
        ask(client)
    assert count(broker) == 3, "the second of ONE waits"
    third = connected(broker, "TWO")
    third.send(ApiVersionsRequest("x", "1"), 3)
    of_brokers = connected(broker, "PLAINTEXT")
    ask(of_brokers)
    assert count(broker) == 4, "clients keep no broker out"
    of_brokers.close()
    first.close()
    assert second.receive().error_code == 0, "whose turn it is now"
    others[0].close()
    assert third.receive().error_code == 0
    for client in (second, third, others[1]):
        client.close()


def test_too_many_a_second_wait(start_broker: StartBroker) -> None:
    """At a rate of one a second ten come at once; by a clock that stands still each of the others waits for a second."""
    broker = start_broker(clock=ManualClock(10**12), **THREE, **{"listener.name.one.max.connection.creation.rate": 1})
    clients = [connected(broker, "ONE") for _ in range(12)]
    for client in clients:
        client.send(ApiVersionsRequest("x", "1"), 3)
    free = connected(broker, "TWO")
    ask(free)
    for client in clients:
        assert client.receive().error_code == 0, "all come in, in the end"
    for client in (*clients, free):
        client.close()


def test_a_broker_that_ends_keeps_nobody_waiting(start_broker: StartBroker) -> None:
    rate = {"max.connection.creation.rate": 1, "quota.window.num": 2, "quota.window.size.seconds": 5}
    broker = start_broker(clock=ManualClock(10**12), **rate)
    clients = [socket.create_connection(broker.address) for _ in range(15)]
    wait_for(lambda: broker.on_loop(lambda: bool(broker.running.server._waiting)))
    broker.stop()
    for client in clients:
        client.close()


def test_an_address_that_makes_too_many(start_broker: StartBroker) -> None:
    broker = start_broker(clock=ManualClock(10**12))
    with broker.client() as client:
        assert altered(client, entry((("ip", "127.0.0.1"),), connection_creation_rate=1.0)) == ["NONE"]
        for _ in range(10):
            with broker.client() as another:
                ask(another)
        with socket.create_connection(broker.address, PATIENCE_S) as refused:
            assert refused.recv(1) == b"", "closed, after a while"
        ask(client)
        waiting = socket.create_connection(broker.address)
        assert altered(client, entry((("ip", "127.0.0.1"),), connection_creation_rate=None)) == ["NONE"]
        for _ in range(20):
            with broker.client() as another:
                ask(another)
    broker.stop()
    waiting.close()


def test_rates_of_addresses() -> None:
    now = [0]

    class Here:
        def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
            done(work())

    quotas = ConnectionQuotas(BrokerConfig(), lambda: now[0], Here())  # type: ignore[arg-type]
    key: Callable[[str | None], QuotaKey] = lambda name: ((("ip", name),), "connection_creation_rate")  # noqa: E731
    quotas.take_over({key("10.0.0.1"): 1.0, key(None): 2.0, key("0:0:0:0:0:0:0:1"): 3.0, key("localhost"): 4.0})
    assert [quotas.wait_of_address_ms("10.0.0.1") for _ in range(12)] == [0] * 10 + [1000] * 2
    assert [quotas.wait_of_address_ms("10.0.0.2") for _ in range(21)] == [0] * 20 + [500]
    assert [quotas.wait_of_address_ms("::1") for _ in range(31)][-2:] == [0, 333]
    assert [quotas.wait_of_address_ms("127.0.0.1") for _ in range(41)][-2:] == [0, 250], "the host of that name"
    now[0] = 11_000
    assert quotas.wait_of_address_ms("10.0.0.1") == 0
    now[0] = 30_000
    assert quotas.wait_of_address_ms("10.0.0.9") == 0 and list(quotas._addresses) == ["10.0.0.9"], "others are forgotten"
    quotas.take_over({})
    assert [quotas.wait_of_address_ms("10.0.0.1") for _ in range(50)] == [0] * 50
    assert [quotas.wait_ms([(None, 1), ("A", 2**31 - 1)]) for _ in range(12)] == [0] * 10 + [1000] * 2
    assert (as_address("::ffff:10.1.2.3"), as_address("host")) == ("10.1.2.3", None)


def test_properties() -> None:
    listeners = parse_listeners(THREE)
    assert protected_listener(listeners, {}) == "PLAINTEXT"
    assert protected_listener(listeners, {"inter.broker.listener.name": "two"}) == "TWO"
    assert protected_listener(listeners[:1], {}) is None
    for name in ("max.connections", "max.connection.creation.rate"):
        sorted_ones = sort_properties({**THREE, f"listener.name.one.{name}": "5"})
        assert not sorted_ones.unused and not sorted_ones.unknown
        for wrong in ("-1", "x", "1.5", str(2**31)):
            with pytest.raises(InvalidArgumentError, match=name):
                BrokerConfig.from_properties({**THREE, f"listener.name.one.{name}": wrong})
