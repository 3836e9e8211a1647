"""The brokers of the cluster as a listener's clients see them, in Metadata, DescribeCluster, FindCoordinator and leader
addresses.

| | |
|---|---|
| `SingleBroker` | this broker only |
| `ClusterBrokers` (`cluster_brokers`) | the brokers that are registered with the controllers |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.broker.requests.listeners import Listener

NO_BROKER = -1


class BrokerView(NamedTuple):
    """A broker and the address that it advertises for a listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class Brokers(Protocol):
    """The brokers of the cluster. Use only on the event loop's thread."""

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the brokers that serve a listener's clients, by id: they are not fenced and have a listener of that name."""

    def registered(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the same brokers as `alive`, plus the fenced ones."""

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        """Return a live broker by its id, or None if no live broker has it."""

    def controller_id(self, listener: Listener) -> int:
        """Return the broker to which clients should send requests for the controller, or NO_BROKER if there is none."""


class SingleBroker:
    """A standalone broker."""

    def __init__(self, node_id: int, rack: str | None) -> None:
        self._node_id = node_id
        self._rack = rack
        self._listener: Listener | None = None
        self._alive: Sequence[BrokerView] = ()

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        if listener is not self._listener:
            self._listener = listener
            self._alive = (BrokerView(self._node_id, listener.advertised_host, listener.advertised_port, self._rack),)
        return self._alive

    registered = alive

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        return self.alive(listener)[0] if broker_id == self._node_id else None

    def controller_id(self, listener: Listener) -> int:
        return self._node_id
