"""The brokers of the cluster, as clients of a listener get them: Metadata, DescribeCluster, FindCoordinator, where a leader is.

| | |
|---|---|
| `SingleBroker` | there is one: this one |
| `ClusterBrokers` (`cluster_brokers`) | those that the controllers have registered |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.broker.server.listeners import Listener

NO_BROKER = -1


class BrokerView(NamedTuple):
    """A broker, with the address that it advertises at a listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class Brokers(Protocol):
    """Which brokers there are. Belongs to the loop's thread."""

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the brokers that serve clients of a listener, by id: those that are not fenced and have one of its name."""

    def registered(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the same with those that are fenced."""

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        """Return one of the brokers that are alive; None if it is not among them."""

    def controller_id(self, listener: Listener) -> int:
        """Return the broker to which clients send what is the controller's; NO_BROKER if none is alive."""


class SingleBroker:
    """A broker that is alone."""

    def __init__(self, node_id: int, rack: str | None) -> None:
        self._node_id = node_id
        self._rack = rack
        self._listener: Listener | None = None
        self._alive: Sequence[BrokerView] = ()

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        """Return this broker."""
        if listener is not self._listener:
            self._listener = listener
            self._alive = (BrokerView(self._node_id, listener.advertised_host, listener.advertised_port, self._rack),)
        return self._alive

    registered = alive

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        """Return this broker, if that is asked for."""
        return self.alive(listener)[0] if broker_id == self._node_id else None

    def controller_id(self, listener: Listener) -> int:
        """Return this broker's id."""
        return self._node_id
