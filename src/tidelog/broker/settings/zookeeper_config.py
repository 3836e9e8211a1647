"""The properties of a member of a ZooKeeper cluster: ``zookeeper.connect``. An Apache Kafka broker is the controller.

================================  =====================  ===================================================================
property                          default                meaning
================================  =====================  ===================================================================
zookeeper.connect                 none                   host:port of servers, separated by commas, and a path that is the
                                                         cluster's root: zk-1:2181,zk-2:2181/kafka
zookeeper.session.timeout.ms      18000                  without a heartbeat for this time ZooKeeper drops the broker
zookeeper.connection.timeout.ms   the session's          how long startup waits for ZooKeeper
inter.broker.protocol.version     3.9                    the protocol among brokers: see `protocol_version`
controlled.shutdown.max.retries   3                      requests to the controller to move leaders before a shutdown
controlled.shutdown.retry...      5000                   ... and the pause in between, in ms (``.backoff.ms``)
================================  =====================  ===================================================================

Defaults are those of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.broker.requests.listeners import parse_address, words
from tidelog.broker.settings.broker_property import integer, parsed
from tidelog.broker.settings.protocol_version import NEWEST, ProtocolVersion
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError

DEFAULT_PORT = 2181

_REFUSED = {
    "zookeeper.ssl.client.enable": "TLS and SASL to ZooKeeper are not supported",
    "zookeeper.set.acl": "ACLs on znodes are not supported",
}
"""Properties that are refused: without their effect, the broker would be less secure than its operator expects."""


@dataclass(frozen=True, kw_only=True)
class ZookeeperConfig:
    """A member's properties in a ZooKeeper cluster by Kafka's names, as in the module's table. Units are in the names."""

    connect: str
    """The servers and the root path, in kazoo's format."""
    protocol: ProtocolVersion
    session_timeout_ms: int = integer("zookeeper.session.timeout.ms", 18_000, 1)
    connection_timeout_ms: int = integer("zookeeper.connection.timeout.ms", 18_000, 1)
    controlled_shutdown_max_retries: int = integer("controlled.shutdown.max.retries", 3, 0)
    controlled_shutdown_retry_backoff_ms: int = integer("controlled.shutdown.retry.backoff.ms", 5_000, 0)

    @classmethod
    def from_properties(cls, properties: Mapping[str, PropertyValue]) -> ZookeeperConfig | None:
        """Return the configuration for a broker's properties, None without ``zookeeper.connect``. Raises InvalidArgumentError."""
        text = str(properties.get("zookeeper.connect") or "").strip()
        if not text:
            return None
        for name, why in _REFUSED.items():
            if str(properties.get(name) or "").strip().lower() == "true":
                raise InvalidArgumentError(f"{name}: {why}", found="true", expected="false")
        values = parsed(cls, properties)
        if "zookeeper.connection.timeout.ms" not in properties and "session_timeout_ms" in values:
            values["connection_timeout_ms"] = values["session_timeout_ms"]
        protocol = ProtocolVersion(str(properties.get("inter.broker.protocol.version") or NEWEST))
        return cls(connect=_connect(text), protocol=protocol, **values)


def _connect(text: str) -> str:
    servers, slash, root = text.partition("/")
    try:
        found = [parse_address(word if ":" in word else f"{word}:{DEFAULT_PORT}", "") for word in words(servers)]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"zookeeper.connect: {error.message}", found=error.found, expected=error.expected) from None
    if not found or not all(host for host, _ in found):
        raise InvalidArgumentError("zookeeper.connect names no server", found=repr(text), expected="host:port, …/path")
    root = root.strip("/ ")
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found) + (
        f"/{root}" if root and slash else ""
    )
