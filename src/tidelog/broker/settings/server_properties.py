"""Sorts the properties of Kafka's `server.properties` by the part of the broker that uses them. `properties_file` parses the
file.

| a property is | goes to |
|---|---|
| the broker's own (`broker_config`) | `BrokerConfig` |
| of the data folder, or a topic default | `LogManager`, under the topics' names |
| Kafka's, without an effect here (`unused_properties`) | nowhere; logged |
| anything else | nowhere; one warning |

Kafka ignores a topic property (`retention.ms`) in the broker's file. Applying it here could delete records that Kafka keeps.
Therefore topic properties are accepted only in keyword arguments and on the command line, which Kafka does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.broker.requests.listeners import is_of_security
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
    """A broker's properties, split by what they configure."""

    config: BrokerConfig
    manager: dict[str, PropertyValue]
    """For `LogManager`: topic defaults under the topics' names."""
    unused: tuple[str, ...]
    """Kafka's properties without an effect here."""
    unknown: tuple[str, ...]


def sort_properties(properties: Mapping[str, PropertyValue], *, topic_names: bool = False) -> ServerProperties:
    """Split properties by what they configure. With `topic_names`, topic properties are accepted as defaults, too.

    Raises InvalidArgumentError for an invalid value. If Kafka has several names for one setting, the name with the finest unit
    takes precedence; a topic property's name takes precedence over all of them.
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
            if str(value) != "-1":  # Kafka's value for "generate one".
                manager.setdefault("node.id", value)
        elif name in of_cluster or is_limit(name) or (is_secured and is_of_security(name)):
            continue
        elif name not in BROKER_PROPERTIES and name not in OTHER_PROPERTIES:
            (unused if is_unused(name) else unknown).append(name)
    if "log.flush.scheduler.interval.ms" in manager:
        # In Kafka the first property is the default of the second.
        defaults.setdefault("log.flush.interval.ms", manager["log.flush.scheduler.interval.ms"])
    if zookeeper is not None and zookeeper.protocol.has_message_formats:
        # In Kafka one is the default of the other here as well: brokers of that release must be able to read the records.
        defaults.setdefault("log.message.format.version", zookeeper.protocol.message_format)
    manager.update(unaliased(defaults, warn=False))
    if zookeeper is not None and zookeeper.protocol.has_message_formats:
        _check_message_format(manager["message.format.version"], zookeeper.protocol)
    ManagerConfig.from_properties(manager)
    return ServerProperties(config, manager, tuple(sorted(unused)), tuple(sorted(unknown)))


def _check_message_format(version: PropertyValue, protocol: ProtocolVersion) -> None:
    """Raise InvalidArgumentError for a message format that the other brokers could not fetch."""
    if LogConfig.from_properties({"message.format.version": version}).magic > protocol.newest_magic:
        raise InvalidArgumentError(
            f"log.message.format.version is newer than inter.broker.protocol.version={protocol}", found=repr(version)
        )


_TOPIC_NAMES = frozenset(LogConfig().to_properties())


def described(unknown: Iterable[str], *, topic_names: bool = False) -> str:
    """Return a list of unknown properties as text, each with the property that was probably meant. With `topic_names`, topic
    properties are suggested, too.
    """
    known = {*MANAGER_PROPERTIES, *BROKER_NAMES, *BROKER_PROPERTIES, *OTHER_PROPERTIES, "broker.id"}
    if topic_names:
        known |= _TOPIC_NAMES
    return ", ".join(f"{name}{did_you_mean(name, known)}" for name in unknown)
