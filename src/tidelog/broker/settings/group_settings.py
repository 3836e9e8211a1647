"""Settings of consumer groups (KIP-848): those of the broker, and those of a single group (resource type 32, GROUP).

| a group's setting | a broker's | must be |
|---|---|---|
| consumer.session.timeout.ms | group.consumer.session.timeout.ms | between group.consumer.min.… and group.consumer.max.… |
| consumer.heartbeat.interval.ms | group.consumer.heartbeat.interval.ms | the same, and less than the session timeout |

Kafka has more group settings, for share and streams groups, which are not coordinated here; they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tidelog.broker.settings.broker_config import BrokerConfig

_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor"
PROTOCOLS: Final = {"classic": "classic", "consumer": "consumer"}
ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    f"{_PACKAGE}.UniformAssignor".lower(): "uniform",
    f"{_PACKAGE}.RangeAssignor".lower(): "range",
}
"""Kafka's assignors: by name since 4.0, before by class."""
DEFAULT_ASSIGNORS: Final = f"{_PACKAGE}.UniformAssignor,{_PACKAGE}.RangeAssignor"
"""Kafka 3.9's default."""

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
GROUP_SETTINGS: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)


def has_consumer_groups(config: BrokerConfig) -> bool:
    """Whether consumer groups are on."""
    return "consumer" in config.group_coordinator_rebalance_protocols


def group_defaults(config: BrokerConfig) -> dict[str, int]:
    """Return the settings of a group that has none of its own."""
    return {
        HEARTBEAT_INTERVAL: config.group_consumer_heartbeat_interval_ms,
        SESSION_TIMEOUT: config.group_consumer_session_timeout_ms,
    }


def check_group_settings(config: BrokerConfig, given: Mapping[str, str]) -> dict[str, int]:
    """Return a group's settings, with the broker's defaults. Raises InvalidArgumentError for an unknown or bad one."""
    values = group_defaults(config)
    for name, text in given.items():
        if name not in values:
            raise InvalidArgumentError("unknown setting of a group", found=name, expected=" or ".join(values))
        if not text.strip().isdecimal():
            raise InvalidArgumentError(f"{name} must be a whole number of milliseconds", found=repr(text))
        values[name] = int(text)
    _check("group.", config, values)
    return values


def check_broker_settings(config: BrokerConfig) -> None:
    """Raise InvalidArgumentError if the broker's settings of consumer groups contradict each other."""
    _check("", config, group_defaults(config))
    is_zookeeper = config.cluster is not None and config.cluster.zookeeper is not None
    if is_zookeeper and has_consumer_groups(config):
        raise InvalidArgumentError(
            "group.coordinator.rebalance.protocols cannot have consumer in a cluster of ZooKeeper, as in Kafka",
            found="classic,consumer",
            expected="classic",
        )


def _check(prefix: str, config: BrokerConfig, values: Mapping[str, int]) -> None:
    limits = {
        HEARTBEAT_INTERVAL: (config.group_consumer_min_heartbeat_interval_ms, config.group_consumer_max_heartbeat_interval_ms),
        SESSION_TIMEOUT: (config.group_consumer_min_session_timeout_ms, config.group_consumer_max_session_timeout_ms),
    }
    for name, (least, most) in limits.items():
        if not least <= values[name] <= most:
            short = name.removeprefix("consumer.")
            raise InvalidArgumentError(
                f"{name if prefix else 'group.' + name} is out of range",
                found=values[name],
                expected=f"{least} to {most}, by group.consumer.min.{short} and group.consumer.max.{short}",
            )
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidArgumentError(
            "the session timeout of a consumer group must be greater than its heartbeat interval",
            found=f"{values[SESSION_TIMEOUT]} ms",
            expected=f"more than {values[HEARTBEAT_INTERVAL]} ms",
        )
