"""Kafka's `server.properties`: who each property is for. The file's format is `properties_file`'s.

| a property is | goes to |
|---|---|
| the broker's own (`broker_config`) | `BrokerConfig` |
| of the data folder, or a default of topics | `LogManager`, under the topics' names |
| Kafka's, without a meaning here (`unused_properties`) | nowhere; logged |
| anything else | nowhere; one warning |

A topic's own name (`retention.ms`) is no broker's property to Kafka, which ignores it in a file; obeying it would delete what
Kafka keeps. So it is taken only from those who cannot mean Kafka: keyword arguments and the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.broker.server.listeners import is_of_security
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES, OTHER_PROPERTIES, BrokerConfig
from tidelog.broker.settings.cluster_config import CLUSTER_PROPERTIES, ZOOKEEPER_PROPERTIES
from tidelog.broker.settings.listener_limits import is_limit
from tidelog.broker.settings.protocol_version import ProtocolVersion
from tidelog.broker.settings.unused_properties import is_unused
from tidelog.config import BROKER_NAMES, LogConfig, PropertyValue, unaliased
from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.security.client_config import PLAINTEXT
from tidelog.storage.manager_config import MANAGER_PROPERTIES, ManagerConfig


class ServerProperties(NamedTuple):
    """A broker's properties, sorted by what they configure."""

    config: BrokerConfig
    manager: dict[str, PropertyValue]
    """For `LogManager`, defaults of topics under the topics' names."""
    unused: tuple[str, ...]
    """Kafka's that mean nothing here."""
    unknown: tuple[str, ...]


def sort_properties(properties: Mapping[str, PropertyValue], *, topic_names: bool = False) -> ServerProperties:
    """Say who each property is for; with `topic_names`, those of topics are defaults too.

    Raises InvalidArgumentError for a bad value. Of Kafka's several names for one thing the one with the finest unit wins, and a
    topic's own name before all.
    """
    config = BrokerConfig.from_properties(properties)
    zookeeper = None if config.cluster is None else config.cluster.zookeeper
    of_cluster = set() if config.cluster is None else CLUSTER_PROPERTIES | (ZOOKEEPER_PROPERTIES if zookeeper else set())
    manager: dict[str, PropertyValue] = {}
    defaults: dict[str, PropertyValue] = {}
    protocols = {one.protocol for one in config.listeners}
    if config.cluster is not None:
        protocols.add(config.cluster.controller_access.protocol)
    is_secured = protocols != {PLAINTEXT}
    unused: list[str] = []
    unknown: list[str] = []
    for name, value in properties.items():
        value = value.strip() if isinstance(value, str) else value
        if name in MANAGER_PROPERTIES:
            manager[name] = value
        elif name in BROKER_NAMES or (topic_names and name in _TOPIC_NAMES):
            defaults[name] = value
        elif name == "broker.id":
            if str(value) != "-1":  # Kafka's for "give me one".
                manager.setdefault("node.id", value)
        elif name in of_cluster or is_limit(name) or (is_secured and is_of_security(name)):
            continue
        elif name not in BROKER_PROPERTIES and name not in OTHER_PROPERTIES:
            (unused if is_unused(name) else unknown).append(name)
    if "log.flush.scheduler.interval.ms" in manager:
        # Kafka's default of the one is the other.
        defaults.setdefault("log.flush.interval.ms", manager["log.flush.scheduler.interval.ms"])
    if zookeeper is not None and zookeeper.protocol.has_message_formats:
        # Kafka's default of the one is the other, too: brokers of that release read what is written.
        defaults.setdefault("log.message.format.version", zookeeper.protocol.message_format)
    manager.update(unaliased(defaults, warn=False))
    if zookeeper is not None and zookeeper.protocol.has_message_formats:
        _check_message_format(manager["message.format.version"], zookeeper.protocol)
    ManagerConfig.from_properties(manager)
    return ServerProperties(config, manager, tuple(sorted(unused)), tuple(sorted(unknown)))


def _check_message_format(version: PropertyValue, protocol: ProtocolVersion) -> None:
    """Raise InvalidArgumentError for a format that the other brokers could not fetch."""
    if LogConfig.from_properties({"message.format.version": version}).magic > protocol.newest_magic:
        raise InvalidArgumentError(
            f"log.message.format.version is newer than inter.broker.protocol.version={protocol}", found=repr(version)
        )


_TOPIC_NAMES = frozenset(LogConfig().to_properties())


def described(unknown: Iterable[str], *, topic_names: bool = False) -> str:
    """Name properties that there are not, each with the one that was probably meant; of a topic's too with `topic_names`."""
    known = {*MANAGER_PROPERTIES, *BROKER_NAMES, *BROKER_PROPERTIES, *OTHER_PROPERTIES, "broker.id"}
    if topic_names:
        known |= _TOPIC_NAMES
    return ", ".join(f"{name}{did_you_mean(name, known)}" for name in unknown)
