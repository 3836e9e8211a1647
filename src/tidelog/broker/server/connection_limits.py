"""Limits on the number and rate of connections, for the broker and each listener (KIP-402, KIP-612).

| property | limits |
|---|---|
| `max.connections` | connections of all listeners together |
| `listener.name.<name>.max.connections` | connections of one listener |
| `max.connection.creation.rate`, `listener.name.<name>.max.connection.creation.rate` | new connections per second, likewise |
| the quota `connection_creation_rate` | new connections per second of one address: see `connection_quotas` |

As in Kafka, the inter-broker listener is exempt from the broker-wide limits, unless it is the only listener: clients must not be
able to lock out brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tidelog.broker.node import Node
from tidelog.broker.quotas.connection_quotas import ConnectionQuotas
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.settings.listener_limits import CREATION_RATE, MAX_CONNECTIONS, UNLIMITED, limit_of


class ConnectionLimits:
    """Counts the connections of one broker. Use only on the event loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        config = node.config
        self._open: Counter[str] = Counter()
        self._most = {one.name: limit_of(one, config.given, MAX_CONNECTIONS) for one in config.listeners}
        self._rates = {one.name: limit_of(one, config.given, CREATION_RATE) for one in config.listeners}
        self._protected = protected_listener(config.listeners, config.given)
        self._quotas = ConnectionQuotas(config, node.delays.now_ms, node.blocking)
        node.quotas.on_change(self._quotas.take_over)
        self._quotas.take_over(node.image.quotas)

    def has_room(self, listener: Listener) -> bool:
        """Whether the listener may have one more connection."""
        name = listener.name
        if self._open[name] >= self._most.get(name, UNLIMITED):
            return False
        return name == self._protected or self._open.total() < self._node.config.max_connections

    @property
    def is_exceeded(self) -> bool:
        """Whether the broker has more connections than its limit. That is possible because inter-broker connections are exempt
        from the limit.
        """
        return self._open.total() > self._node.config.max_connections

    def opened(self, name: str) -> None:
        """Count a new connection of a listener."""
        self._open[name] += 1

    def closed(self, name: str) -> None:
        """Count a closed connection."""
        self._open[name] -= 1

    def wait_ms(self, listener: Listener) -> int:
        """Count a new connection of a listener. Return for how many ms this connection and later ones must wait."""
        name = listener.name
        rates: list[tuple[str | None, int]] = [(name, self._rates.get(name, UNLIMITED))]
        if name != self._protected:
            rates.append((None, self._node.config.max_connection_creation_rate))
        return self._quotas.wait_ms(rates)

    def wait_of_address_ms(self, host: str) -> int:
        return self._quotas.wait_of_address_ms(host)


def protected_listener(listeners: Iterable[Listener], given: Mapping[str, str]) -> str | None:
    """Return the name of the inter-broker listener, or None if it is the only listener."""
    names = [one.name for one in listeners]
    wanted = given.get("inter.broker.listener.name") or given.get("security.inter.broker.protocol") or "PLAINTEXT"
    return wanted.upper() if len(names) > 1 and wanted.upper() in names else None
