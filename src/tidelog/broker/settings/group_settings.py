"""Settings of consumer groups (KIP-848): those of the broker, and those of a single group (resource type 32, GROUP).

| a group's setting | a broker's | must be |
|---|---|---|
| consumer.session.timeout.ms | group.consumer.session.timeout.ms | between group.consumer.min.… and group.consumer.max.… |
| consumer.heartbeat.interval.ms | group.consumer.heartbeat.interval.ms | the same, and less than the session timeout |

Kafka has more group settings, for share and streams groups. They are refused, because this broker does not coordinate such
groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.errors import InvalidArgumentError

_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor"
MIGRATIONS: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
"""The values of ``group.consumer.migration.policy``: in which direction groups with members may change their protocol."""
UPGRADES: Final = ("bidirectional", "upgrade")
DOWNGRADES: Final = ("bidirectional", "downgrade")
PROTOCOLS: Final = {"classic": "classic", "consumer": "consumer"}
ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    f"{_PACKAGE}.UniformAssignor".lower(): "uniform",
    f"{_PACKAGE}.RangeAssignor".lower(): "range",
}
"""Kafka's assignors, by their names (since Kafka 4.0) and by their class names (before)."""
DEFAULT_ASSIGNORS: Final = f"{_PACKAGE}.UniformAssignor,{_PACKAGE}.RangeAssignor"
"""Kafka 3.9's default."""

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class Limited(NamedTuple):
    """A setting's default for all groups, and its limits, in ms."""

    default: int
    least: int
    most: int


ConsumerGroupSettings = Mapping[str, Limited]
"""The broker's settings of consumer groups, by the name of the group's setting."""


def group_defaults(settings: ConsumerGroupSettings) -> dict[str, int]:
    """Return the settings of a group for which none are set."""
    return {name: one.default for name, one in settings.items()}


def check_group_settings(settings: ConsumerGroupSettings, given: Mapping[str, str]) -> None:
    """Raise InvalidArgumentError for an unknown or invalid setting of a group."""
    values = group_defaults(settings)
    for name, text in given.items():
        if name not in values:
            raise InvalidArgumentError("the group setting is unknown", found=name, expected=" or ".join(values))
        if not text.strip().isdecimal():
            raise InvalidArgumentError(f"{name} must be a whole number of milliseconds", found=repr(text))
        values[name] = int(text)
    _check(settings, values, "")


def check_broker_settings(settings: ConsumerGroupSettings) -> None:
    """Raise InvalidArgumentError if the broker's settings of consumer groups contradict each other."""
    _check(settings, group_defaults(settings), "group.")


def _check(settings: ConsumerGroupSettings, values: Mapping[str, int], prefix: str) -> None:
    for name, (_, least, most) in settings.items():
        if not least <= values[name] <= most:
            short = name.removeprefix("consumer.")
            raise InvalidArgumentError(
                f"{prefix}{name} is out of range",
                found=values[name],
                expected=f"{least} to {most}, by group.consumer.min.{short} and group.consumer.max.{short}",
            )
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidArgumentError(
            "the session timeout of a consumer group must be greater than its heartbeat interval",
            found=f"{values[SESSION_TIMEOUT]} ms",
            expected=f"more than {values[HEARTBEAT_INTERVAL]} ms",
        )
