"""Kafka's topic properties, typed.

=======================================  ===================  ===============================================================
property                                 default              meaning
=======================================  ===================  ===============================================================
segment.bytes                            1073741824           a segment never grows beyond this many bytes
segment.ms                               604800000            event time from a segment's first batch to the batch that rolls it
segment.jitter.ms                        0                    largest random reduction of segment.ms, drawn once for each segment
segment.index.bytes                      10485760             capacity of each index; a full index rolls the segment
index.interval.bytes                     4096                 bytes of log between two index entries
preallocate                              false                a new segment's file gets its full length at once
flush.messages                           9223372036854775807  force the log to disk after this many records
flush.ms                                 9223372036854775807  force the log to disk after this time
cleanup.policy                           delete               delete, compact, or both: "compact,delete"
retention.ms                             604800000            segments with only older records are deleted; -1: no limit
retention.bytes                          -1                   oldest segments are deleted while at least this many bytes remain
file.delete.delay.ms                     60000                time between renaming a file to .deleted and removing it
delete.retention.ms                      86400000             how long a compacted log keeps tombstones and markers
min.compaction.lag.ms                    0                    records younger than this are not compacted
max.compaction.lag.ms                    9223372036854775807  records older than this are compacted, even if they are few
min.cleanable.dirty.ratio                0.5                  share of the log that must be dirty before it is compacted
compression.type                         producer             the codec of stored batches; producer: as they were sent
compression.gzip.level                   -1                   1 to 9; -1: the codec's default
compression.lz4.level                    9                    1 to 17
compression.zstd.level                   3                    -131072 to 22
max.message.bytes                        1048588              the largest size of a batch, as stored
message.format.version                   3.0-IV1              below 0.10.0: format v0; below 0.11.0: v1; else v2
message.timestamp.type                   CreateTime           CreateTime (set by the producer) or LogAppendTime (by the log)
message.timestamp.difference.max.ms      9223372036854775807  the largest distance of a record's time from now (deprecated)
message.timestamp.before.max.ms          9223372036854775807  how far a record's time may be in the past
message.timestamp.after.max.ms           9223372036854775807  how far a record's time may be in the future
message.downconversion.enable            true                 whether batches are converted to older formats for older clients
min.insync.replicas                      1                    the number of in-sync replicas that acks=all needs
unclean.leader.election.enable           false                kept for Kafka
leader.replication.throttled.replicas    ""                   throttled replicas: partition:broker,..., or * for all
follower.replication.throttled.replicas  ""                   the same, on the follower's side
remote.storage.enable                    false                tiered storage is not supported: the broker refuses true
remote.log.copy.disable                  false                kept for Kafka
remote.log.delete.on.disable             false                kept for Kafka
local.retention.ms                       -2                   kept for Kafka
local.retention.bytes                    -2                   kept for Kafka
tidelog.log.append.time.monotonic        true                 append times never go backward, even if the clock does
tidelog.log.decompressed.max.bytes       104857600            the largest decompressed size of a producer's batch
=======================================  ===================  ===============================================================

Names, defaults and ranges are those of Apache Kafka 3.9 (storage specification, §17). Only Tidelog has the last two properties.
The first of them makes an append time the later of now and the last append time (KIP-32). Properties marked "kept for Kafka" have
no effect here: they are reported as set, and are passed on when a topic is handed over. Aliases are accepted, with one notice for
each: the broker's names (``log.segment.bytes``), the names in KIP-32 and KIP-33, and older releases' units (``log.roll.hours``).
Any layer may import this module.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean

logger = logging.getLogger("tidelog.config")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
DELETE = "delete"
COMPACT = "compact"

PropertyValue = str | int | float | bool


class _Property(NamedTuple):
    """A property's name, parser and Kafka type. `parse` raises InvalidArgumentError."""

    name: str
    parse: Callable[[Any], Any]
    kind: str


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


def _integer(name: str, default: int, minimum: int, maximum: int, *, but: tuple[int, ...] = ()) -> Any:
    def parse(value: Any) -> int:
        number = value
        if isinstance(value, str):
            number = int(value) if _WHOLE_NUMBER.fullmatch(value.strip()) else None
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidArgumentError(f"{name} must be a whole number", found=repr(value))
        if not minimum <= number <= maximum or number in but:
            raise InvalidArgumentError(f"{name} is out of range", found=number, expected=f"{minimum} to {maximum}")
        return number

    return field(default=default, metadata={"property": _Property(name, parse, "INT" if maximum <= INT32_MAX else "LONG")})


def _ratio(name: str, default: float) -> Any:
    def parse(value: Any) -> float:
        try:
            number = None if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not 0 <= number <= 1:
            raise InvalidArgumentError(f"{name} must be a ratio", found=repr(value), expected="0 to 1")
        return number

    return field(default=default, metadata={"property": _Property(name, parse, "DOUBLE")})


def parse_flag(name: str, value: object) -> bool:
    """Parse a boolean as Kafka does. Raises InvalidArgumentError, which names the property."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgumentError(f"{name} must be true or false", found=repr(value))
    return text == "true"


def _flag(name: str, default: bool) -> Any:
    def parse(value: Any) -> bool:
        return parse_flag(name, value)

    return field(default=default, metadata={"property": _Property(name, parse, "BOOLEAN")})


def _choice(name: str, default: str, choices: tuple[str, ...]) -> Any:
    def parse(value: Any) -> str:
        text = value.strip() if isinstance(value, str) else value
        if text not in choices:
            raise InvalidArgumentError(f"{name} has an unknown value", found=repr(value), expected=", ".join(choices))
        return str(text)

    return field(default=default, metadata={"property": _Property(name, parse, "STRING")})


def _policy(name: str, default: str) -> Any:
    def parse(value: Any) -> str:
        wanted = [part.strip() for part in str(value).split(",")] if str(value).strip() else []
        if any(part not in (COMPACT, DELETE) for part in wanted):
            raise InvalidArgumentError(f"{name} has an unknown value", found=repr(value), expected="delete, compact or both")
        return ",".join(sorted(set(wanted)))

    return field(default=default, metadata={"property": _Property(name, parse, "LIST")})


_REPLICAS = re.compile(r"[0-9]+:[0-9]+")


def _replicas(name: str) -> Any:
    def parse(value: Any) -> str:
        text = str(value).strip()
        if text and text != "*" and not all(_REPLICAS.fullmatch(part.strip()) for part in text.split(",")):
            raise InvalidArgumentError(
                f"{name} must be a list of replicas", found=repr(value), expected="partition:broker,... or *"
            )
        return text

    return field(default="", metadata={"property": _Property(name, parse, "LIST")})


_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(?:\.[0-9]+)?(?:-IV[0-9]+)?")


def _release(name: str, default: str) -> Any:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not _RELEASE.fullmatch(value.strip()):
            raise InvalidArgumentError(
                f"{name} must be a Kafka release", found=repr(value), expected="like 0.9.0, 0.10.2 or 3.0-IV1"
            )
        return value.strip()

    return field(default=default, metadata={"property": _Property(name, parse, "STRING")})


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """The settings of one partition's log. Units are in the field names; values are checked on construction.

    Raises InvalidArgumentError, which names Kafka's property, for a value that Kafka refuses.
    """

    segment_bytes: int = _integer("segment.bytes", 1 << 30, 14, INT32_MAX)
    segment_ms: int = _integer("segment.ms", 7 * 24 * 3600 * 1000, 1, INT64_MAX)
    segment_jitter_ms: int = _integer("segment.jitter.ms", 0, 0, INT64_MAX)
    segment_index_bytes: int = _integer("segment.index.bytes", 10 << 20, 4, INT32_MAX)
    index_interval_bytes: int = _integer("index.interval.bytes", 4096, 0, INT32_MAX)
    preallocate: bool = _flag("preallocate", False)
    flush_messages: int = _integer("flush.messages", INT64_MAX, 1, INT64_MAX)
    flush_ms: int = _integer("flush.ms", INT64_MAX, 0, INT64_MAX)
    cleanup_policy: str = _policy("cleanup.policy", DELETE)
    retention_ms: int = _integer("retention.ms", 7 * 24 * 3600 * 1000, -1, INT64_MAX)
    retention_bytes: int = _integer("retention.bytes", -1, -(2**63), INT64_MAX)
    file_delete_delay_ms: int = _integer("file.delete.delay.ms", 60_000, 0, INT64_MAX)
    delete_retention_ms: int = _integer("delete.retention.ms", 24 * 3600 * 1000, 0, INT64_MAX)
    min_compaction_lag_ms: int = _integer("min.compaction.lag.ms", 0, 0, INT64_MAX)
    max_compaction_lag_ms: int = _integer("max.compaction.lag.ms", INT64_MAX, 1, INT64_MAX)
    min_cleanable_dirty_ratio: float = _ratio("min.cleanable.dirty.ratio", 0.5)
    compression_type: str = _choice("compression.type", "producer", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
    compression_gzip_level: int = _integer("compression.gzip.level", -1, -1, 9, but=(0,))
    compression_lz4_level: int = _integer("compression.lz4.level", 9, 1, 17)
    compression_zstd_level: int = _integer("compression.zstd.level", 3, -131072, 22)
    max_message_bytes: int = _integer("max.message.bytes", 1_048_588, 0, INT32_MAX)
    message_format_version: str = _release("message.format.version", "3.0-IV1")
    message_timestamp_type: str = _choice("message.timestamp.type", CREATE_TIME, (CREATE_TIME, LOG_APPEND_TIME))
    message_timestamp_difference_max_ms: int = _integer("message.timestamp.difference.max.ms", INT64_MAX, 0, INT64_MAX)
    message_timestamp_before_max_ms: int = _integer("message.timestamp.before.max.ms", INT64_MAX, 0, INT64_MAX)
    message_timestamp_after_max_ms: int = _integer("message.timestamp.after.max.ms", INT64_MAX, 0, INT64_MAX)
    message_downconversion_enable: bool = _flag("message.downconversion.enable", True)
    min_insync_replicas: int = _integer("min.insync.replicas", 1, 1, INT32_MAX)
    unclean_leader_election_enable: bool = _flag("unclean.leader.election.enable", False)
    leader_replication_throttled_replicas: str = _replicas("leader.replication.throttled.replicas")
    follower_replication_throttled_replicas: str = _replicas("follower.replication.throttled.replicas")
    remote_storage_enable: bool = _flag("remote.storage.enable", False)
    remote_log_copy_disable: bool = _flag("remote.log.copy.disable", False)
    remote_log_delete_on_disable: bool = _flag("remote.log.delete.on.disable", False)
    local_retention_ms: int = _integer("local.retention.ms", -2, -2, INT64_MAX)
    local_retention_bytes: int = _integer("local.retention.bytes", -2, -2, INT64_MAX)
    append_time_monotonic: bool = _flag("tidelog.log.append.time.monotonic", True)
    decompressed_max_bytes: int = _integer("tidelog.log.decompressed.max.bytes", 104_857_600, 1, INT32_MAX)

    def __post_init__(self) -> None:
        # One request may change thousands of topics, so unchanged values are not checked again.
        for field_name, (default, parse) in _parsers().items():
            value = getattr(self, field_name)
            if value is not default:
                object.__setattr__(self, field_name, parse(value))
        if self.max_compaction_lag_ms < self.min_compaction_lag_ms:
            raise InvalidArgumentError(
                "max.compaction.lag.ms is below min.compaction.lag.ms",
                found=self.max_compaction_lag_ms,
                expected=f"{self.min_compaction_lag_ms} or more",
            )

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether cleanup.policy contains "delete", so that retention by time and size applies."""
        return DELETE in self.cleanup_policy

    @cached_property
    def magic(self) -> int:
        """The message format in which batches are stored: 0, 1 or 2."""
        release = _RELEASE.fullmatch(self.message_format_version)
        assert release is not None
        major, minor = int(release[1]), int(release[2])
        return 0 if (major, minor) < (0, 10) else 1 if (major, minor) < (0, 11) else 2

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment rolls: segment.ms, or max.compaction.lag.ms if that is shorter (spec §4.1)."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far a record's time may be in the past. If this is not set, message.timestamp.difference.max.ms applies
        (KIP-937).
        """
        before = self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms if before == INT64_MAX else before

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far a record's time may be in the future; see `timestamp_before_max_ms`."""
        after = self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms if after == INT64_MAX else after

    @classmethod
    def from_properties(cls, properties: Mapping[str, PropertyValue]) -> LogConfig:
        """Return the settings from properties under Kafka's names. Raises InvalidArgumentError for an unknown name or an
        invalid value.
        """
        known = _field_names()
        values: dict[str, Any] = {}
        for name, text in unaliased(properties).items():
            if name not in known:
                near = did_you_mean(name, known)
                expected = None if near else ", ".join(sorted(known))
                raise InvalidArgumentError("unknown topic property", found=f"{name}{near}", expected=expected)
            values[known[name]] = text
        return cls(**values)

    @classmethod
    def kinds(cls) -> dict[str, str]:
        """Return Kafka's type of each property: INT, LONG, DOUBLE, BOOLEAN, STRING or LIST."""
        return {one.metadata["property"].name: one.metadata["property"].kind for one in fields(cls)}

    def to_properties(self) -> dict[str, PropertyValue]:
        """Return the settings under Kafka's names."""
        return {one.metadata["property"].name: getattr(self, one.name) for one in fields(self)}


@cache
def _parsers() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return each field's default value, already parsed, and the field's parser."""
    return {one.name: (one.default, one.metadata["property"].parse) for one in fields(LogConfig)}


@cache
def _field_names() -> dict[str, str]:
    """Return the field's name for each property."""
    return {one.metadata["property"].name: one.name for one in fields(LogConfig)}


def _times(factor: int) -> Callable[[PropertyValue], PropertyValue]:
    def multiply(value: PropertyValue) -> PropertyValue:
        try:
            number = int(value)
        except ValueError:
            return value  # The property's own check gives the reason.
        return number if number < 0 else number * factor

    return multiply


def _same(value: PropertyValue) -> PropertyValue:
    return value


_HOUR_MS = 3600 * 1000
# Later entries take precedence: if a property is set by several names, Kafka uses the name with the finest unit.
_ALIASES: dict[str, tuple[str, Callable[[PropertyValue], PropertyValue]]] = {
    "log.roll.hours": ("segment.ms", _times(_HOUR_MS)),
    "log.roll.ms": ("segment.ms", _same),
    "log.roll.jitter.hours": ("segment.jitter.ms", _times(_HOUR_MS)),
    "log.roll.jitter.ms": ("segment.jitter.ms", _same),
    "log.retention.hours": ("retention.ms", _times(_HOUR_MS)),
    "log.retention.minutes": ("retention.ms", _times(60 * 1000)),
    "log.retention.ms": ("retention.ms", _same),
    "log.retention.bytes": ("retention.bytes", _same),
    "log.segment.bytes": ("segment.bytes", _same),
    "log.index.size.max.bytes": ("segment.index.bytes", _same),
    "log.index.interval.bytes": ("index.interval.bytes", _same),
    "log.preallocate": ("preallocate", _same),
    "log.flush.interval.messages": ("flush.messages", _same),
    "log.flush.interval.ms": ("flush.ms", _same),
    "log.cleanup.policy": ("cleanup.policy", _same),
    "log.segment.delete.delay.ms": ("file.delete.delay.ms", _same),
    "log.cleaner.delete.retention.ms": ("delete.retention.ms", _same),
    "log.cleaner.min.compaction.lag.ms": ("min.compaction.lag.ms", _same),
    "log.cleaner.max.compaction.lag.ms": ("max.compaction.lag.ms", _same),
    "log.cleaner.min.cleanable.ratio": ("min.cleanable.dirty.ratio", _same),
    "message.max.bytes": ("max.message.bytes", _same),
    "log.message.format.version": ("message.format.version", _same),
    "log.message.timestamp.type": ("message.timestamp.type", _same),
    "log.message.timestamp.difference.max.ms": ("message.timestamp.difference.max.ms", _same),
    "log.message.timestamp.before.max.ms": ("message.timestamp.before.max.ms", _same),
    "log.message.timestamp.after.max.ms": ("message.timestamp.after.max.ms", _same),
    "log.message.downconversion.enable": ("message.downconversion.enable", _same),
    "log.local.retention.ms": ("local.retention.ms", _same),
    "log.local.retention.bytes": ("local.retention.bytes", _same),
    "message.time.difference.ms": ("message.timestamp.difference.max.ms", _same),
    "max.message.time.difference.ms": ("message.timestamp.difference.max.ms", _same),
}

BROKER_NAMES = {
    **{alias: name for alias, (name, _) in _ALIASES.items() if alias.startswith("log.")},
    "message.max.bytes": "max.message.bytes",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "tidelog.log.append.time.monotonic": "tidelog.log.append.time.monotonic",
    "tidelog.log.decompressed.max.bytes": "tidelog.log.decompressed.max.bytes",
}
"""The broker properties that set defaults for topics, with the topic properties. The finest unit of a property is last."""

_warned: set[str] = set()


def unaliased(properties: Mapping[str, PropertyValue], *, warn: bool = True, checks: bool = True) -> dict[str, PropertyValue]:
    """Return the properties with each alias replaced by the topic property's name. A property's own name takes precedence over an
    alias. Each alias logs one notice.

    With `checks`, raise InvalidArgumentError for an invalid value of an alias. Its message starts with the alias.
    """
    if _ALIASES.keys().isdisjoint(properties):
        return dict(properties)
    found: dict[str, PropertyValue] = {}
    for alias, (name, convert) in _ALIASES.items():
        if alias in properties:
            found[name] = convert(properties[alias])
            if checks:
                _check_alias(alias, name, found[name])
            if warn and alias not in _warned:
                _warned.add(alias)
                logger.warning("%s is used as %s", alias, name)
    return {**found, **{name: value for name, value in properties.items() if name not in _ALIASES}}


def _check_alias(alias: str, name: str, value: PropertyValue) -> None:
    _, parse = _parsers()[_field_names()[name]]
    try:
        parse(value)
    except InvalidArgumentError as error:
        # The topic's name shows the unit: for log.retention.hours, the message has milliseconds.
        message = error.message.replace(name, f"{alias} ({name})", 1)
        raise InvalidArgumentError(message, found=error.found, expected=error.expected) from None
