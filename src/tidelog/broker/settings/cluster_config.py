"""The properties of a cluster member: ``process.roles=broker`` (KRaft, KIP-500) or ``zookeeper.connect``. The controllers are
Apache Kafka's, or Tidelog's own under `tidelog serve --processes`.

=======================================  ==========  ==================================================================
property                                 default     meaning
=======================================  ==========  ==================================================================
process.roles                            none        broker: a cluster member; broker,controller or none: standalone
node.id, broker.id                       none        this broker's id, unique in the cluster
controller.quorum.voters                 none        id@host:port of each controller, separated by commas
controller.quorum.bootstrap.servers      none        host:port of controllers, used if no voters are set (KIP-853)
controller.listener.names                none        the controllers' listeners; the first one's protocol is used
sasl.mechanism.controller.protocol       none        this broker's SASL mechanism at the controllers' listener
inter.broker.listener.name               PLAINTEXT   the inter-broker listener
security.inter.broker.protocol           PLAINTEXT   the same listener, by its protocol; set only one of the two
sasl.mechanism.inter.broker.protocol     none        this broker's SASL mechanism at the other brokers' listener
controller.quorum.request.timeout.ms     2000        a request to the quorum fails after this
controller.quorum.fetch.timeout.ms       2000        without a response for this time, another controller is asked
controller.quorum.retry.backoff.ms       20          the wait before a failed request to the quorum is retried
controller.socket.timeout.ms             30000       a request to the active controller fails after this
initial.broker.registration.timeout.ms   60000       how long startup waits for the registration
broker.heartbeat.interval.ms             2000        the time between two heartbeats to the controller
broker.session.timeout.ms                9000        without a heartbeat for this time, the controller fences this broker
controlled.shutdown.enable               true        whether leaders move to other brokers before a shutdown
num.replica.fetchers                     1           connections to each leader
replica.lag.time.max.ms                  30000       a follower that lags for this time leaves the in-sync replicas
replica.fetch.min.bytes                  1           a response to a follower waits for this many bytes
replica.fetch.max.bytes                  1048576     the most bytes of a partition in such a response
replica.fetch.response.max.bytes         10485760    the largest size of such a response
replica.fetch.wait.max.ms                500         how long the leader waits for replica.fetch.min.bytes
replica.fetch.backoff.ms                 1000        how long a follower waits after a partition's error
replica.socket.timeout.ms                30000       a request to a leader fails after this
replica.socket.receive.buffer.bytes      65536       the kernel's buffer of a connection to a leader
replication.quota.window.num             11          how many windows the rate of throttled bytes covers
replication.quota.window.size.seconds    1           the length of a window of that rate
request.timeout.ms                       30000       a request to another broker fails after this
socket.connection.setup.timeout.ms       10000       a connection attempt fails after this
socket.connection.setup.timeout.max.ms   30000       the longest such timeout: it doubles after each failed attempt
replica.selector.class                   none        which replica consumers should read from (KIP-392)
=======================================  ==========  ==================================================================

Defaults, ranges and conflicts are those of Apache Kafka 3.9.1 (``KafkaConfig``). The broker's rack, replication factors and
listeners are in `BrokerConfig`; ``min.insync.replicas`` and ``unclean.leader.election.enable`` are topic defaults. Under
ZooKeeper the properties of quorums and controllers are ignored; `zookeeper_config` has those that apply only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from tidelog.broker.requests.listeners import Listener, controller_protocol, listener_names, parse_address, words
from tidelog.broker.settings.broker_property import BrokerProperty, flag, integer, parsed, properties_of
from tidelog.broker.settings.peer_security import CONTROLLER_MECHANISM, INTER_BROKER_MECHANISM, peer_config
from tidelog.broker.settings.zookeeper_config import ZookeeperConfig
from tidelog.config import INT32_MAX, INT64_MAX, PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import IN_PLAIN_TEXT, PLAINTEXT, SECURITY_PROTOCOLS, ClientConfig

_MIN_INT32 = -(2**31)
_MIN_INT64 = -(2**63)


class Voter(NamedTuple):
    """A controller of the quorum, from ``controller.quorum.voters``."""

    node_id: int
    host: str
    port: int


class ReplicaSelector(Enum):
    """How consumers are sent to replicas, by the name of Kafka's class (KIP-392)."""

    LEADER = "org.apache.kafka.common.replica.LeaderSelector"
    RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """A cluster member's properties by Kafka's names, as in the module's table. Units are in the names.

    At least one of `voters` and `bootstrap_servers` is not empty, unless `zookeeper` is set; if both are given, the voters are
    used, as in Kafka.
    """

    node_id: int
    voters: tuple[Voter, ...] = ()
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    controller_listener_names: tuple[str, ...] = ()
    inter_broker_listener_name: str = PLAINTEXT
    """The name of the inter-broker listener, in capitals. It is one of the broker's listeners."""
    inter_broker_access: ClientConfig = IN_PLAIN_TEXT
    """How this broker connects to other brokers' inter-broker listener; its secrets are never shown."""
    controller_access: ClientConfig = IN_PLAIN_TEXT
    replica_selector: ReplicaSelector = ReplicaSelector.LEADER
    zookeeper: ZookeeperConfig | None = None
    """The properties for a ZooKeeper cluster; None for a KRaft cluster."""
    controller_quorum_request_timeout_ms: int = integer("controller.quorum.request.timeout.ms", 2_000, _MIN_INT32)
    controller_quorum_fetch_timeout_ms: int = integer("controller.quorum.fetch.timeout.ms", 2_000, _MIN_INT32)
    controller_quorum_retry_backoff_ms: int = integer("controller.quorum.retry.backoff.ms", 20, _MIN_INT32)
    controller_socket_timeout_ms: int = integer("controller.socket.timeout.ms", 30_000, _MIN_INT32)
    initial_broker_registration_timeout_ms: int = integer("initial.broker.registration.timeout.ms", 60_000, _MIN_INT32)
    broker_heartbeat_interval_ms: int = integer("broker.heartbeat.interval.ms", 2_000, _MIN_INT32)
    broker_session_timeout_ms: int = integer("broker.session.timeout.ms", 9_000, _MIN_INT32)
    controlled_shutdown_enable: bool = flag("controlled.shutdown.enable", True)
    num_replica_fetchers: int = integer("num.replica.fetchers", 1, 1)
    replica_lag_time_max_ms: int = integer("replica.lag.time.max.ms", 30_000, _MIN_INT64, INT64_MAX)
    replica_fetch_min_bytes: int = integer("replica.fetch.min.bytes", 1, _MIN_INT32)
    replica_fetch_max_bytes: int = integer("replica.fetch.max.bytes", 1_048_576, 0)
    replica_fetch_response_max_bytes: int = integer("replica.fetch.response.max.bytes", 10_485_760, 0)
    replica_fetch_wait_max_ms: int = integer("replica.fetch.wait.max.ms", 500, _MIN_INT32)
    replica_fetch_backoff_ms: int = integer("replica.fetch.backoff.ms", 1_000, 0)
    replica_socket_timeout_ms: int = integer("replica.socket.timeout.ms", 30_000, _MIN_INT32)
    replica_socket_receive_buffer_bytes: int = integer("replica.socket.receive.buffer.bytes", 65_536, _MIN_INT32)
    replication_quota_window_num: int = integer("replication.quota.window.num", 11, 1)
    replication_quota_window_size_seconds: int = integer("replication.quota.window.size.seconds", 1, 1)
    request_timeout_ms: int = integer("request.timeout.ms", 30_000, _MIN_INT32)
    socket_connection_setup_timeout_ms: int = integer("socket.connection.setup.timeout.ms", 10_000, _MIN_INT64, INT64_MAX)
    socket_connection_setup_timeout_max_ms: int = integer("socket.connection.setup.timeout.max.ms", 30_000, _MIN_INT64, INT64_MAX)

    @property
    def connect_timeouts_s(self) -> tuple[float, float]:
        """How long an attempt to connect to another node may take, in seconds: at first, and after many failed attempts
        (KIP-601).
        """
        return self.socket_connection_setup_timeout_ms / 1000, self.socket_connection_setup_timeout_max_ms / 1000

    @classmethod
    def from_properties(cls, properties: Mapping[str, PropertyValue], listeners: tuple[Listener, ...]) -> ClusterConfig | None:
        """Return the configuration for a broker's properties and its `listeners`, or None for a standalone broker.

        Raises InvalidArgumentError for an invalid or missing value, and for conflicting properties.
        """
        if not is_in_cluster(properties):
            return None
        node_id = _node_id(properties)
        own = _inter_broker_listener(properties, listeners)
        common: dict[str, Any] = {
            "node_id": node_id,
            "inter_broker_listener_name": own.name,
            "inter_broker_access": peer_config(properties, own.name, own.protocol, INTER_BROKER_MECHANISM),
            "replica_selector": _replica_selector(properties),
            **parsed(cls, properties),
        }
        zookeeper = None if properties.get("process.roles") else ZookeeperConfig.from_properties(properties)
        if zookeeper is not None:
            found = cls(zookeeper=zookeeper, **common)
        else:
            voters = tuple(map(_voter, words(properties.get("controller.quorum.voters"))))
            servers = "controller.quorum.bootstrap.servers"
            bootstrap_servers = tuple(_routable(servers, word) for word in words(properties.get(servers)))
            _check_quorum(node_id, voters, bootstrap_servers)
            names = _controller_listener_names(properties)
            protocol = controller_protocol(names[0], properties)
            found = cls(
                voters=voters,
                bootstrap_servers=bootstrap_servers,
                controller_listener_names=names,
                controller_access=peer_config(properties, names[0], protocol, CONTROLLER_MECHANISM),
                **common,
            )
        found._check_times()
        return found

    def _check_times(self) -> None:
        for name, longest in (
            ("replica.socket.timeout.ms", self.replica_socket_timeout_ms),
            ("replica.lag.time.max.ms", self.replica_lag_time_max_ms),
        ):
            if self.replica_fetch_wait_max_ms > longest:
                raise InvalidArgumentError(
                    "replica.fetch.wait.max.ms is too long",
                    found=self.replica_fetch_wait_max_ms,
                    expected=f"at most {name}, {longest}",
                )


CLUSTER_NUMBERS: Mapping[str, BrokerProperty] = properties_of(ClusterConfig)
"""Numeric properties of a cluster member, by name."""

ZOOKEEPER_PROPERTIES = properties_of(ZookeeperConfig).keys() | {"zookeeper.connect", "inter.broker.protocol.version"}
"""Properties that apply only under ZooKeeper."""

CLUSTER_PROPERTIES = CLUSTER_NUMBERS.keys() | {
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    INTER_BROKER_MECHANISM,
    CONTROLLER_MECHANISM,
    "replica.selector.class",
}
"""All properties that apply only in a cluster; on a standalone broker they are accepted and ignored."""

CLUSTER_DEFAULTS: Mapping[str, int] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "socket.receive.buffer.bytes": 102_400,
}
"""Defaults that differ between a cluster member and a standalone broker; these are Kafka's.

A small socket buffer is faster if requests wait for other replicas: librdkafka makes larger batches when the kernel accepts no
more bytes. With a large buffer, librdkafka does not notice that the broker is busy.
"""


def is_in_cluster(properties: Mapping[str, PropertyValue]) -> bool:
    """Whether a broker with these properties is a cluster member.

    A node that would be its own controller in Kafka (``broker,controller``) is standalone, and so is a node without roles and
    without ZooKeeper. Raises InvalidArgumentError for unknown roles, for a controller that is not a broker, and for a node whose
    quorum has other members, because it would start a separate cluster.
    """
    roles = words(properties.get("process.roles"))
    if roles and (set(roles) - {"broker", "controller"} or len(set(roles)) != len(roles)):
        raise InvalidArgumentError(
            "process.roles has an unknown value", found=repr(properties["process.roles"]), expected="broker"
        )
    if roles == ["controller"]:
        raise InvalidArgumentError(
            "the controller role is not supported without the broker role",
            found="process.roles=controller",
            expected="process.roles=broker",
        )
    in_cluster = roles == ["broker"] or (not roles and bool(str(properties.get("zookeeper.connect") or "").strip()))
    if not in_cluster:
        _check_alone(properties)
    return in_cluster


def _check_alone(properties: Mapping[str, PropertyValue]) -> None:
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        members = words(properties.get(name))
        own = str(properties.get("node.id", properties.get("broker.id", ""))).strip()
        if len(members) > 1 or (name.endswith("voters") and members and members[0].partition("@")[0] != own):
            raise InvalidArgumentError(
                f"this broker cannot be one of several controllers: {name} must name only this broker",
                found=",".join(members),
                expected="process.roles=broker, or the node alone",
            )


def _node_id(properties: Mapping[str, PropertyValue]) -> int:
    text = str(properties.get("node.id", properties.get("broker.id", -1))).strip()
    if text == "-1":  # Kafka's value for "generate one".
        text = str(properties.get("broker.id", -1)).strip()
    if not (text.isascii() and text.isdigit()) or int(text) > INT32_MAX:
        found = None if text == "-1" else repr(text)
        raise InvalidArgumentError("a broker of a cluster needs a node.id", found=found, expected=f"0 to {INT32_MAX}")
    return int(text)


def _voter(word: str) -> Voter:
    node, separator, address = word.partition("@")
    if not separator or not (node.isascii() and node.isdigit()) or int(node) > INT32_MAX:
        raise InvalidArgumentError("controller.quorum.voters has an invalid voter", found=repr(word), expected="id@host:port")
    return Voter(int(node), *_routable("controller.quorum.voters", address))


def _routable(name: str, address: str) -> tuple[str, int]:
    try:
        host, port = parse_address(address, "")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error.message}", found=error.found, expected=error.expected) from None
    if not host or host == "0.0.0.0" or port == 0:
        raise InvalidArgumentError(
            f"{name} needs an address that other nodes can connect to", found=repr(address), expected="host:port"
        )
    return host, port


def _check_quorum(node_id: int, voters: tuple[Voter, ...], servers: tuple[tuple[str, int], ...]) -> None:
    if not voters and not servers:
        raise InvalidArgumentError(
            "a broker of a cluster needs the addresses of its controllers",
            expected="controller.quorum.voters or controller.quorum.bootstrap.servers",
        )
    ids = [voter.node_id for voter in voters]
    if len(set(ids)) != len(ids):
        raise InvalidArgumentError(
            "controller.quorum.voters has a duplicate id", found=next(one for one in ids if ids.count(one) > 1)
        )
    if node_id in ids:
        raise InvalidArgumentError(
            "a broker that is not a controller cannot be a voter", found=f"node.id={node_id} in controller.quorum.voters"
        )


def _controller_listener_names(properties: Mapping[str, PropertyValue]) -> tuple[str, ...]:
    names = tuple(word.upper() for word in words(properties.get("controller.listener.names")))
    if not names:
        raise InvalidArgumentError(
            "a broker of a cluster needs controller.listener.names", expected="the name of the controllers' listener"
        )
    own = sorted(listener_names(properties) & set(names))
    if own:
        raise InvalidArgumentError(
            "only a controller can have the listeners in controller.listener.names", found=f"{', '.join(own)} in listeners"
        )
    for name in names:
        controller_protocol(name, properties)
    return names


def _inter_broker_listener(properties: Mapping[str, PropertyValue], listeners: tuple[Listener, ...]) -> Listener:
    name = str(properties.get("inter.broker.listener.name") or "").strip().upper()
    protocol = str(properties.get("security.inter.broker.protocol") or "").strip().upper()
    if name and protocol:
        raise InvalidArgumentError(
            "two properties set the inter-broker listener",
            found=f"inter.broker.listener.name={name}, security.inter.broker.protocol={protocol}",
            expected="one of them",
        )
    if protocol and protocol not in SECURITY_PROTOCOLS:
        raise InvalidArgumentError(
            "security.inter.broker.protocol has an unknown value", found=protocol, expected=" or ".join(SECURITY_PROTOCOLS)
        )
    name = name or protocol or PLAINTEXT
    own = next((one for one in listeners if one.name == name), None)
    if own is None:
        raise InvalidArgumentError(
            "the inter-broker listener is not in listeners", found=name, expected="inter.broker.listener.name"
        )
    return own


def _replica_selector(properties: Mapping[str, PropertyValue]) -> ReplicaSelector:
    name = str(properties.get("replica.selector.class") or "").strip()
    if not name:
        return ReplicaSelector.LEADER
    try:
        return ReplicaSelector(name)
    except ValueError:
        known = " or ".join(one.value for one in ReplicaSelector)
        raise InvalidArgumentError("replica.selector.class must be one of Kafka's classes", found=name, expected=known) from None
