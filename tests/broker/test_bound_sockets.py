"""A cluster member's sockets between `bind` and `take`: the port is known and reserved, and clients are refused."""

from __future__ import annotations

import socket

import pytest

from tidelog.broker.requests.listeners import Listener
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import InvalidArgumentError

LOOPBACK = "127.0.0.1"


def config(*ports: int) -> BrokerConfig:
    return BrokerConfig(listeners=tuple(Listener(f"L{port}", LOOPBACK, port, LOOPBACK, port) for port in ports))


def test_clients_are_refused_until_the_broker_serves() -> None:
    bound = bind(config(0))
    port = bound.listeners[0].port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
    ((sock, listener),) = bound.take()
    with sock, socket.create_connection((LOOPBACK, port)):
        assert listener.port == port


def test_another_process_that_has_begun_to_listen_meanwhile() -> None:
    """All sockets are closed then, those that listen already, too."""
    first = bind(config(0, 0))
    ports = [listener.port for listener in first.listeners]
    second = bind(config(*ports[1:]))
    ((taken, _),) = second.take()
    with taken:
        with pytest.raises(InvalidArgumentError, match=rf"cannot listen on {LOOPBACK}:{ports[1]}: Address already in use"):
            first.take()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, ports[0]))
        with pytest.raises(InvalidArgumentError, match="cannot listen"):
            bind(config(ports[1]))
