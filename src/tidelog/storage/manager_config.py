"""A broker's properties for its data folder, under Kafka's names.

===================================================  ====================  ==================================================
property                                             default               meaning
===================================================  ====================  ==================================================
node.id                                              as the folder says    the node that owns the folder (1 in a new one)
cluster.id                                           as the folder says    its cluster (random in a new one)
num.recovery.threads.per.data.dir                    1                     partitions loaded at the same time
log.initial.task.delay.ms                            30000                 from startup to the first background work
log.retention.check.interval.ms                      300000                how often to look for segments to delete
log.flush.scheduler.interval.ms                      9223372036854775807   how often to look for logs to flush by flush.ms
log.flush.offset.checkpoint.interval.ms              60000                 how often recovery points are written
log.flush.start.offset.checkpoint.interval.ms        60000                 how often log start offsets are written
replica.high.watermark.checkpoint.interval.ms        5000                  how often high watermarks are written
log.cleaner.enable                                   true                  whether compacted topics are compacted
log.cleaner.backoff.ms                               15000                 the pause when no log is dirty enough to compact
log.cleaner.dedupe.buffer.size                       134217728             bytes for the keys of one compaction
producer.id.expiration.ms                            86400000              the state of an idle producer is dropped after this
tidelog.time.map.enable                              true                  whether finished segments get time maps
===================================================  ====================  ==================================================

All other properties are topic defaults, see `config.LogConfig`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.config import BROKER_NAMES, INT64_MAX, LogConfig, PropertyValue, parse_flag, unaliased
from tidelog.errors import InvalidArgumentError

logger = logging.getLogger("tidelog.storage")

_NUMBERS = {
    "node.id": ("node_id", 0, 2**31 - 1),
    "num.recovery.threads.per.data.dir": ("recovery_threads", 1, 1024),
    "log.initial.task.delay.ms": ("initial_task_delay_ms", 0, INT64_MAX),
    "log.retention.check.interval.ms": ("retention_check_interval_ms", 1, INT64_MAX),
    "log.flush.scheduler.interval.ms": ("flush_scheduler_interval_ms", 1, INT64_MAX),
    "log.flush.offset.checkpoint.interval.ms": ("recovery_point_checkpoint_interval_ms", 1, INT64_MAX),
    "log.flush.start.offset.checkpoint.interval.ms": ("log_start_offset_checkpoint_interval_ms", 1, INT64_MAX),
    "replica.high.watermark.checkpoint.interval.ms": ("high_watermark_checkpoint_interval_ms", 1, INT64_MAX),
    "log.cleaner.backoff.ms": ("cleaner_backoff_ms", 1, INT64_MAX),
    "log.cleaner.dedupe.buffer.size": ("cleaner_dedupe_buffer_bytes", 1, INT64_MAX),
    "producer.id.expiration.ms": ("producer_id_expiration_ms", 1, INT64_MAX),
}

_FLAGS = {"log.cleaner.enable": "is_cleaner_enabled", "tidelog.time.map.enable": "is_time_map_enabled"}

MESSAGE_FORMAT = "message.format.version"

DYNAMIC_NUMBERS = frozenset(
    {
        "num.recovery.threads.per.data.dir",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "producer.id.expiration.ms",
    }
)
"""The numeric properties that can change while a broker runs."""

MANAGER_PROPERTIES = frozenset({*_NUMBERS, *_FLAGS, "cluster.id"})
"""The names of the properties in the module's table."""


@dataclass(frozen=True, kw_only=True)
class ManagerConfig:
    """A folder's properties by Kafka's names, as in the module's table. `topic_defaults` are the defaults of topics."""

    node_id: int | None = None
    cluster_id: str | None = None
    recovery_threads: int = 1
    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = INT64_MAX
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    is_cleaner_enabled: bool = True
    cleaner_backoff_ms: int = 15_000
    cleaner_dedupe_buffer_bytes: int = 128 << 20
    producer_id_expiration_ms: int = 86_400_000
    is_time_map_enabled: bool = True
    topic_defaults: dict[str, PropertyValue] = field(default_factory=dict)
    has_topics_without_ids: bool = False
    """Whether topics may have no id, as in a ZooKeeper cluster (KIP-516)."""
    has_message_formats: bool = False
    """Whether message.format.version has an effect: in ZooKeeper clusters before protocol 3.0."""
    newest_magic: int = 2
    """The newest message format that a member of a ZooKeeper cluster uses: other brokers could not fetch a newer one."""
    is_member: bool = False
    """Whether controllers decide on the settings. Unusable settings, such as those of a newer Kafka, are then skipped. So is
    message.format.version, as in Kafka under KRaft, unless `has_message_formats`: an older format beside brokers that ignore it
    would break replication.
    """

    @classmethod
    def from_properties(cls, properties: Mapping[str, PropertyValue]) -> ManagerConfig:
        """Build a configuration from properties under Kafka's names. Raises InvalidArgumentError for an unknown name or an
        invalid value.
        """
        values: dict[str, object] = {}
        rest: dict[str, PropertyValue] = {}
        for name, value in properties.items():
            if name in _NUMBERS:
                values[_NUMBERS[name][0]] = _number(name, value)
            elif name in _FLAGS:
                values[_FLAGS[name]] = parse_flag(name, value)
            elif name == "cluster.id":
                values["cluster_id"] = str(value)
            else:
                rest[name] = value
        rest = unaliased(rest)
        LogConfig.from_properties(rest)
        return cls(topic_defaults=rest, **values)  # type: ignore[arg-type]

    def with_dynamic(self, settings: Mapping[str, str]) -> ManagerConfig:
        """Return a copy with a broker's dynamic settings (KIP-226). Unknown values are ignored."""
        defaults: dict[str, PropertyValue] = {}
        numbers: dict[str, Any] = {}
        for name, value in settings.items():
            with suppress(InvalidArgumentError):  # Another owner of the folder may have accepted it.
                if name in DYNAMIC_NUMBERS:
                    numbers[_NUMBERS[name][0]] = _number(name, value.strip())
                elif name in BROKER_NAMES:
                    named = unaliased({name: value.strip()}, warn=False)
                    LogConfig.from_properties(named)
                    defaults.update(named)
        return replace(self, topic_defaults={**self.topic_defaults, **defaults}, **numbers)

    def to_properties(self) -> dict[str, PropertyValue | None]:
        """Return the settings under Kafka's names, without topic defaults."""
        fields = {name: one[0] for name, one in _NUMBERS.items()} | _FLAGS | {"cluster.id": "cluster_id"}
        return {name: getattr(self, attribute) for name, attribute in fields.items()}

    def topic_config(self, properties: Mapping[str, PropertyValue]) -> LogConfig:
        """Return a topic's configuration: its own `properties`, completed by the defaults."""
        own = unaliased(properties, warn=not self.is_member, checks=not self.is_member)
        if not self.is_member:
            return LogConfig.from_properties({**self.topic_defaults, **own})
        newest_magic = self.newest_magic if self.has_message_formats else None
        # One by one: if the topic's own value is skipped, the broker's applies.
        return LogConfig.from_properties({**_understood(self.topic_defaults, newest_magic), **_understood(own, newest_magic)})


def _understood(settings: Mapping[str, PropertyValue], newest_magic: int | None) -> dict[str, PropertyValue]:
    understood = {}
    for name, value in settings.items():
        if name == MESSAGE_FORMAT and newest_magic is None:
            continue
        try:
            config = LogConfig.from_properties({name: value})
        except InvalidArgumentError as error:
            logger.warning("a topic's setting is skipped: %s", error)
            continue
        if name == MESSAGE_FORMAT and newest_magic is not None and config.magic > newest_magic:
            logger.warning("a topic's %s=%s is skipped: inter.broker.protocol.version is older", name, value)
            continue
        understood[name] = value
    return understood


def _number(name: str, value: PropertyValue) -> int:
    _, minimum, maximum = _NUMBERS[name]
    number: PropertyValue | None
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidArgumentError(f"{name} must be a whole number", found=repr(value))
    if not minimum <= number <= maximum:
        raise InvalidArgumentError(f"{name} is out of range", found=number, expected=f"{minimum} to {maximum}")
    return number
