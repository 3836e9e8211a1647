"""A broker's properties, under Kafka's names.

=====================================  ==========  ====================================================================
property                               default     meaning
=====================================  ==========  ====================================================================
listeners and their properties         loopback    see `listeners`
log.dirs, log.dir                      none        the data folder; only one is supported
broker.rack                            none        this broker's rack, which clients see
socket.request.max.bytes               104857600   a larger request is refused, and its connection is closed
socket.send.buffer.bytes               -1          the kernel's buffer for sent bytes; -1: the kernel's choice (Kafka: 102400)
socket.receive.buffer.bytes            -1          the kernel's buffer for received bytes; in a cluster 102400, as in Kafka
socket.listen.backlog.size             1024        connections that may wait to be accepted (Kafka: 50)
max.connections                        2147483647  connections at the same time
max.connections.per.ip                 2147483647  connections at the same time from one address
max.connections.per.ip.overrides       none        limits for single addresses: host:count, separated by commas
max.connection.creation.rate           2147483647  connections per second; above that, the listener pauses
quota.window.num                       11          how many windows the rates of client quotas cover
quota.window.size.seconds              1           the length of a window of client quotas
controller.quota.window.num            11          how many windows the rate of created and deleted partitions covers
controller.quota.window.size.seconds   1           the length of a window of that rate
connections.max.idle.ms                600000      an idle connection is closed after this
queued.max.request.bytes               -1          bytes of large requests being read before others wait; -1: 512 MiB
authorizer.class.name                  none        StandardAuthorizer checks permissions; see `authorization`
super.users                            none        principals with full access: User:a;User:b
allow.everyone.if.no.acl.found         false       whether resources without ACLs are open to all
auto.create.topics.enable              true        whether Metadata requests create missing topics
num.partitions                         1           the number of partitions of new topics, by default
default.replication.factor             1           the number of replicas of new topics, by default
delete.topic.enable                    true        whether topics can be deleted
fetch.max.bytes                        57671680    the most bytes of a fetch response
max.incremental.fetch.session...slots  1000        the most fetch sessions
message.max.bytes                      1048588     the largest batch; the default of max.message.bytes
group.min.session.timeout.ms           6000        the shortest session timeout of a member
group.max.session.timeout.ms           1800000     the longest session timeout of a member
group.initial.rebalance.delay.ms       3000        how long an empty group waits for more members
group.max.size                         2147483647  the most members of a group
offset.metadata.max.bytes              4096        the longest metadata of a committed offset
group.coordinator.rebalance.protocols  classic     classic, or classic,consumer: consumer groups (KIP-848) too
group.consumer.assignors               both        server-side assignors, uniform and range; the first one is the default
group.consumer.migration.policy        disabled    upgrade, downgrade, bidirectional: groups with members may change protocol
group.consumer.max.size                2147483647  the most members of a consumer group
group.consumer.session.timeout.ms      45000       how long a member of a consumer group may be silent
group.consumer.min.session...          45000       the shortest session timeout that can be set for a group
group.consumer.max.session...          60000       the longest session timeout that can be set for a group
group.consumer.heartbeat.interval.ms   5000        how often members of consumer groups send heartbeats
group.consumer.min.heartbeat...        5000        the shortest heartbeat interval that can be set for a group
group.consumer.max.heartbeat...        15000       the longest heartbeat interval that can be set for a group
offsets.retention.minutes              10080       how long offsets of an empty group are kept
offsets.retention.check.interval.ms    600000      how often the broker looks for expired offsets
offsets.commit.timeout.ms              5000        in a cluster: how long a commit waits for other replicas
offsets.topic.num.partitions           50          partitions of __consumer_offsets, when it is created
offsets.topic.replication.factor       1           replicas of __consumer_offsets, likewise; in a cluster 3, as in Kafka
offsets.topic.segment.bytes            104857600   segment.bytes of __consumer_offsets, when it is created
offsets.topic.compression.codec        0           the codec of batches in __consumer_offsets, by Kafka's number
transaction.max.timeout.ms             900000      the longest transaction timeout of a producer
transactional.id.expiration.ms         604800000   how long a transactional id without transactions is kept
transaction.abort.timed.out...         10000       how often the broker looks for transactions that have timed out
transaction.remove.expired...          3600000     how often the broker looks for expired transactional ids
transaction.state.log.num.partitions   50          partitions of __transaction_state, when it is created
transaction.state.log.replication...   1           replicas of __transaction_state, likewise; in a cluster 3, as in Kafka
transaction.state.log.segment.bytes    104857600   segment.bytes of __transaction_state, when it is created
transaction.state.log.min.isr          1           min.insync.replicas of __transaction_state; in a cluster 2, as in Kafka
transaction.partition.verification...  true        whether transactions are verified before an append
=====================================  ==========  ====================================================================

Defaults and ranges are those of Apache Kafka 3.9, except where the table gives Kafka's default. Topic defaults and settings of
the data folder go to `LogManager`: see `server_properties`. For a cluster member see also `cluster_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tidelog.broker.requests.listeners import LISTENER_PROPERTIES, Listener, loopback, parse_listeners, words
from tidelog.broker.settings.authorizer_properties import check_authorizer, super_users
from tidelog.broker.settings.broker_property import (
    BrokerProperty,
    choice,
    counts,
    flag,
    integer,
    listed,
    parsed,
    properties_of,
    text,
)
from tidelog.broker.settings.cluster_config import CLUSTER_DEFAULTS, ClusterConfig
from tidelog.broker.settings.group_settings import (
    ASSIGNORS,
    DEFAULT_ASSIGNORS,
    HEARTBEAT_INTERVAL,
    MIGRATIONS,
    PROTOCOLS,
    SESSION_TIMEOUT,
    ConsumerGroupSettings,
    Limited,
    check_broker_settings,
)
from tidelog.broker.settings.listener_limits import CREATION_RATE, MAX_CONNECTIONS, limit_of
from tidelog.broker.settings.listener_security import check_secured
from tidelog.config import INT32_MAX, INT64_MAX, PropertyValue
from tidelog.errors import InvalidArgumentError

__all__ = ["BROKER_PROPERTIES", "BrokerConfig", "BrokerProperty", "Listener"]


DYNAMIC_PROPERTIES = frozenset(
    {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "message.max.bytes",
        "transaction.partition.verification.enable",
    }
)
"""The properties of the table that can be changed while the broker runs."""


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """A broker's properties by Kafka's names, as in the module's table. Units are in the names."""

    listeners: tuple[Listener, ...] = (loopback(),)
    log_dir: Path | None = None
    cluster: ClusterConfig | None = None
    """The properties of a cluster member; None for a standalone broker."""
    broker_rack: str | None = text("broker.rack")
    socket_request_max_bytes: int = integer("socket.request.max.bytes", 104_857_600, 1)
    socket_send_buffer_bytes: int = integer("socket.send.buffer.bytes", -1, -1)
    socket_receive_buffer_bytes: int = integer("socket.receive.buffer.bytes", -1, -1)
    socket_listen_backlog_size: int = integer("socket.listen.backlog.size", 1024, 1)
    max_connections: int = integer("max.connections", INT32_MAX, 0)
    max_connections_per_ip: int = integer("max.connections.per.ip", INT32_MAX, 0)
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = counts("max.connections.per.ip.overrides")
    max_connection_creation_rate: int = integer("max.connection.creation.rate", INT32_MAX, 0)
    quota_window_num: int = integer("quota.window.num", 11, 1)
    quota_window_size_seconds: int = integer("quota.window.size.seconds", 1, 1)
    controller_quota_window_num: int = integer("controller.quota.window.num", 11, 1)
    controller_quota_window_size_seconds: int = integer("controller.quota.window.size.seconds", 1, 1)
    connections_max_idle_ms: int = integer("connections.max.idle.ms", 600_000, -1, INT64_MAX)
    queued_max_request_bytes: int = integer("queued.max.request.bytes", -1, -1, INT64_MAX)
    authorizer_class_name: str = text("authorizer.class.name", "")
    super_users: str | None = text("super.users")
    allow_everyone_if_no_acl_found: bool = flag("allow.everyone.if.no.acl.found", False)
    auto_create_topics_enable: bool = flag("auto.create.topics.enable", True)
    num_partitions: int = integer("num.partitions", 1, 1)
    default_replication_factor: int = integer("default.replication.factor", 1, -(2**15), 2**15 - 1)
    delete_topic_enable: bool = flag("delete.topic.enable", True)
    fetch_max_bytes: int = integer("fetch.max.bytes", 57_671_680, 1024)
    max_incremental_fetch_session_cache_slots: int = integer("max.incremental.fetch.session.cache.slots", 1000, 0)
    message_max_bytes: int = integer("message.max.bytes", 1_048_588, 0)
    group_min_session_timeout_ms: int = integer("group.min.session.timeout.ms", 6_000, -(2**31))
    group_max_session_timeout_ms: int = integer("group.max.session.timeout.ms", 1_800_000, -(2**31))
    group_initial_rebalance_delay_ms: int = integer("group.initial.rebalance.delay.ms", 3_000, -(2**31))
    group_max_size: int = integer("group.max.size", INT32_MAX, 1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = listed(
        "group.coordinator.rebalance.protocols", "classic", PROTOCOLS, needs="classic"
    )
    group_consumer_assignors: tuple[str, ...] = listed("group.consumer.assignors", DEFAULT_ASSIGNORS, ASSIGNORS)
    group_consumer_migration_policy: str = choice("group.consumer.migration.policy", "disabled", MIGRATIONS)
    group_consumer_max_size: int = integer("group.consumer.max.size", INT32_MAX, 1)
    group_consumer_session_timeout_ms: int = integer("group.consumer.session.timeout.ms", 45_000, 1)
    group_consumer_min_session_timeout_ms: int = integer("group.consumer.min.session.timeout.ms", 45_000, 1)
    group_consumer_max_session_timeout_ms: int = integer("group.consumer.max.session.timeout.ms", 60_000, 1)
    group_consumer_heartbeat_interval_ms: int = integer("group.consumer.heartbeat.interval.ms", 5_000, 1)
    group_consumer_min_heartbeat_interval_ms: int = integer("group.consumer.min.heartbeat.interval.ms", 5_000, 1)
    group_consumer_max_heartbeat_interval_ms: int = integer("group.consumer.max.heartbeat.interval.ms", 15_000, 1)
    offset_metadata_max_bytes: int = integer("offset.metadata.max.bytes", 4_096, -(2**31))
    offsets_retention_minutes: int = integer("offsets.retention.minutes", 10_080, 1)
    offsets_retention_check_interval_ms: int = integer("offsets.retention.check.interval.ms", 600_000, 1, INT64_MAX)
    offsets_commit_timeout_ms: int = integer("offsets.commit.timeout.ms", 5_000, 1)
    offsets_topic_num_partitions: int = integer("offsets.topic.num.partitions", 50, 1)
    offsets_topic_replication_factor: int = integer("offsets.topic.replication.factor", 1, 1, 2**15 - 1, "SHORT")
    offsets_topic_segment_bytes: int = integer("offsets.topic.segment.bytes", 104_857_600, 1)
    offsets_topic_compression_codec: int = integer("offsets.topic.compression.codec", 0, 0, 4)
    transaction_max_timeout_ms: int = integer("transaction.max.timeout.ms", 900_000, 1)
    transactional_id_expiration_ms: int = integer("transactional.id.expiration.ms", 604_800_000, 1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, 1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, 1
    )
    transaction_state_log_num_partitions: int = integer("transaction.state.log.num.partitions", 50, 1)
    transaction_state_log_replication_factor: int = integer("transaction.state.log.replication.factor", 1, 1, 2**15 - 1, "SHORT")
    transaction_state_log_segment_bytes: int = integer("transaction.state.log.segment.bytes", 104_857_600, 1)
    transaction_state_log_min_isr: int = integer("transaction.state.log.min.isr", 1, 1)
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """All properties that the broker was started with, as text, including those without an effect."""
    is_read_only: bool = False
    """Whether the folder is served read-only (`read_only`); not a property."""
    transaction_partition_verification_enable: bool = flag("transaction.partition.verification.enable", True)

    def with_dynamic(self, settings: Mapping[str, str]) -> BrokerConfig:
        """Return a copy with the broker's dynamic settings (KIP-226); unusable ones are left out."""
        values: dict[str, Any] = {}
        for one in fields(self):
            known = one.metadata.get("property")
            if known is not None and known.name in DYNAMIC_PROPERTIES and known.name in settings:
                with suppress(InvalidArgumentError):  # Another owner of the folder may have accepted it.
                    values[one.name] = known.parse(settings[known.name])
        return replace(self, **values)

    @classmethod
    def from_properties(cls, properties: Mapping[str, PropertyValue]) -> BrokerConfig:
        """Return the configuration for a broker's properties. Names that are not in the table are ignored.

        Raises InvalidArgumentError for an invalid value.
        """
        listeners = parse_listeners(properties)
        cluster = ClusterConfig.from_properties(properties, listeners)
        values = parsed(cls, properties if cluster is None else {**CLUSTER_DEFAULTS, **properties})
        given = {
            name: str(value).lower() if isinstance(value, bool) else str(value).strip() for name, value in properties.items()
        }
        check_secured(listeners, given)
        for one in listeners:
            limit_of(one, given, MAX_CONNECTIONS)
            limit_of(one, given, CREATION_RATE)
        check_authorizer(
            values.get("authorizer_class_name") or "", has_zookeeper=cluster is not None and cluster.zookeeper is not None
        )
        super_users(values.get("super_users"))
        config = cls(listeners=listeners, cluster=cluster, log_dir=_log_dir(properties), given=given, **values)
        check_broker_settings(config.consumer_groups)
        if config.has_consumer_groups and cluster is not None and cluster.zookeeper is not None:
            what = "group.coordinator.rebalance.protocols: a ZooKeeper cluster has no consumer groups, as in Kafka"
            raise InvalidArgumentError(what, found="classic,consumer", expected="classic")
        return config

    @property
    def has_consumer_groups(self) -> bool:
        """Whether consumer groups (KIP-848) are on."""
        return "consumer" in self.group_coordinator_rebalance_protocols

    @cached_property
    def consumer_groups(self) -> ConsumerGroupSettings:
        """The settings that can also be set for a single consumer group, with their limits."""
        return {
            HEARTBEAT_INTERVAL: Limited(
                self.group_consumer_heartbeat_interval_ms,
                self.group_consumer_min_heartbeat_interval_ms,
                self.group_consumer_max_heartbeat_interval_ms,
            ),
            SESSION_TIMEOUT: Limited(
                self.group_consumer_session_timeout_ms,
                self.group_consumer_min_session_timeout_ms,
                self.group_consumer_max_session_timeout_ms,
            ),
        }


BROKER_PROPERTIES: Mapping[str, BrokerProperty] = properties_of(BrokerConfig)
"""The broker's own properties by name, except those of listeners and of the data folder."""

OTHER_PROPERTIES = LISTENER_PROPERTIES | {"log.dirs", "log.dir"}


def _log_dir(properties: Mapping[str, PropertyValue]) -> Path | None:
    given = str(properties.get("log.dirs") or properties.get("log.dir") or "")
    folders = words(given)
    if len(folders) > 1:
        raise InvalidArgumentError("log.dirs has several folders", found=given, expected="one: this broker has one data folder")
    return Path(folders[0]) if folders else None
