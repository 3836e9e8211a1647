"""Topic and broker properties as DescribeConfigs shows them: value, source, synonyms.

A topic property is looked up in these places. The first place where it is set determines its value; all places where it is set
are its synonyms:

| where | source |
|---|---|
| the topic itself | DYNAMIC_TOPIC_CONFIG (1) |
| this broker's dynamic settings (`dynamic_settings`) | DYNAMIC_BROKER_CONFIG (2) |
| the dynamic settings of all brokers | DYNAMIC_DEFAULT_BROKER_CONFIG (3) |
| the broker's properties, under the broker's names for it, the finest unit first | STATIC_BROKER_CONFIG (4) |
| the broker's default, if it has one under that name | DEFAULT_CONFIG (5) |

As in Kafka, DescribeConfigs gives no synonyms if the finest-unit name (``log.retention.ms``) is not set, even if
``log.retention.hours`` is. CreateTopics also considers the coarser names when it reports the source.

A broker property is looked up in the same order, without the topic. It is read-only unless it is dynamic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from tidelog import config as topic_config
from tidelog.broker.core import Core
from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.requests.listeners import joined
from tidelog.broker.settings import broker_config, cluster_config
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES, OTHER_PROPERTIES
from tidelog.broker.settings.cluster_config import CLUSTER_DEFAULTS, CLUSTER_NUMBERS, CLUSTER_PROPERTIES
from tidelog.broker.settings.dynamic_settings import DYNAMIC, is_sensitive, kind_and_default
from tidelog.broker.settings.sensitive_properties import SENSITIVE_PROPERTIES, UNDEFINED_PROPERTIES, is_read_only, is_secret
from tidelog.config import BROKER_NAMES, LogConfig, PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.storage import manager_config
from tidelog.storage.manager_config import ManagerConfig
from tidelog.wire.error_codes import ErrorCode

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6

CONFIG_TYPES = {
    "UNKNOWN": 0,
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}


class Synonym(NamedTuple):
    """Another place where a property may be set, and its value there."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A property as DescribeConfigs returns it. Values are text; the type is Kafka's number."""

    name: str
    value: str | None
    source: int
    config_type: int
    is_read_only: bool
    synonyms: list[Synonym]
    is_sensitive: bool = False
    """Whether the value is hidden from clients; true for unknown properties."""


_BROKER_NAMES: dict[str, tuple[str, ...]] = {}
"""The broker's names for each topic property, in order of precedence."""

for _name, _topic_name in BROKER_NAMES.items():
    _BROKER_NAMES[_topic_name] = (_name, *_BROKER_NAMES.get(_topic_name, ()))
_BROKER_NAMES["flush.ms"] += ("log.flush.scheduler.interval.ms",)

# Kafka's defaults of broker properties that differ from the topic's, because of another unit or a missing default.
_OTHER_DEFAULTS: dict[str, str | None] = {
    "log.roll.ms": None,
    "log.roll.hours": "168",
    "log.roll.jitter.ms": None,
    "log.roll.jitter.hours": "0",
    "log.retention.ms": None,
    "log.retention.minutes": None,
    "log.retention.hours": "168",
    "log.flush.interval.ms": None,
}

_MANAGER_KINDS = {
    "num.recovery.threads.per.data.dir": "INT",
    "log.initial.task.delay.ms": "LONG",
    "log.retention.check.interval.ms": "LONG",
    "log.flush.scheduler.interval.ms": "LONG",
    "log.flush.offset.checkpoint.interval.ms": "INT",
    "log.flush.start.offset.checkpoint.interval.ms": "INT",
    "replica.high.watermark.checkpoint.interval.ms": "LONG",
    "log.cleaner.enable": "BOOLEAN",
    "log.cleaner.backoff.ms": "LONG",
    "log.cleaner.dedupe.buffer.size": "LONG",
    "producer.id.expiration.ms": "INT",
    "tidelog.time.map.enable": "BOOLEAN",
}


MAX_NAMED = 10
"""The most unknown properties that an error names."""


class ConfigEntries:
    """Answers requests about properties of topics and of the broker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kinds = LogConfig.kinds()
        self._defaults = {name: text(value) for name, value in LogConfig().to_properties().items()}

    # --- topics

    def check_topic(self, properties: Mapping[str, str]) -> None:
        """Raise ApiError (INVALID_CONFIG) unless these are topic properties, under their topic names, with valid values."""
        unknown = sorted(properties.keys() - self._kinds.keys())
        if unknown:
            # A request may have thousands, and each suggestion takes some microseconds.
            named = ", ".join(f"{name}{did_you_mean(name, self._kinds)}" for name in unknown[:MAX_NAMED])
            raise ApiError(ErrorCode.INVALID_CONFIG, f"a topic has no property {named}")
        try:
            LogConfig.from_properties(properties)  # A member's configuration ignores properties that it does not know.
            config = self._core.manager.config.topic_config(properties)
        except InvalidArgumentError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if config.remote_storage_enable:
            raise ApiError(ErrorCode.INVALID_CONFIG, "remote.storage.enable: tiered storage is not supported")

    def created_topic(self, properties: Mapping[str, str]) -> list[ConfigEntry]:
        """Return the properties that a CreateTopics response shows for a topic on which `properties` are set, sorted by name."""
        return [self._created(name, properties) for name in sorted(self._kinds)]

    def topic(self, properties: Mapping[str, str]) -> list[ConfigEntry]:
        """Return all properties of a topic, by name; `properties` are those set on the topic. Properties unknown here have only a
        name.
        """
        return [
            self._topic_entry(name, properties) if name in self._kinds else _hidden(name)
            for name in sorted(self._kinds.keys() | properties.keys())
        ]

    def _created(self, name: str, properties: Mapping[str, str]) -> ConfigEntry:
        kind = CONFIG_TYPES[self._kinds[name]]
        if name in properties:
            return ConfigEntry(name, properties[name], DYNAMIC_TOPIC_CONFIG, kind, False, [])
        default = self._core.manager.config.topic_defaults.get(name)
        if default is None:
            return ConfigEntry(name, self._defaults[name], DEFAULT_CONFIG, kind, False, [])
        synonyms = self._dynamic_synonyms(_BROKER_NAMES.get(name, ()))
        return ConfigEntry(name, text(default), synonyms[0].source if synonyms else STATIC_BROKER_CONFIG, kind, False, [])

    def _topic_entry(self, name: str, properties: Mapping[str, str]) -> ConfigEntry:
        synonyms = self._broker_synonyms(_BROKER_NAMES.get(name, ()), name)
        default = self._core.manager.config.topic_defaults.get(name)
        value = self._defaults[name] if default is None else text(default)
        if name in properties:
            value = _shown(properties[name], self._kinds[name])
            synonyms.insert(0, Synonym(name, value, DYNAMIC_TOPIC_CONFIG))
        source = synonyms[0].source if synonyms else DEFAULT_CONFIG
        return ConfigEntry(name, value, source, CONFIG_TYPES[self._kinds[name]], False, synonyms)

    def _broker_synonyms(self, names: tuple[str, ...], topic_name: str) -> list[Synonym]:
        """Return the places where a broker's property is set, and its default. In `names` the requested name comes first."""
        given = self._core.config.given
        found = self._dynamic_synonyms(names)
        if names and topic_name in given and names[0] not in given:  # Embedded brokers may use the topics' names.
            found.append(Synonym(names[0], given[topic_name], STATIC_BROKER_CONFIG))
        found += [Synonym(name, given[name], STATIC_BROKER_CONFIG) for name in names if name in given]
        for name in names:
            default = _OTHER_DEFAULTS[name] if name in _OTHER_DEFAULTS else self._defaults[topic_name]
            if default is not None:
                found.append(Synonym(name, default, DEFAULT_CONFIG))
        while found and found[0].name != names[0]:
            del found[0]
        return found

    def _dynamic_synonyms(self, names: tuple[str, ...]) -> list[Synonym]:
        """Return the dynamic settings of a broker's property, this broker's first."""
        settings = self._core.dynamic_settings
        return [
            Synonym(name, given[name], source)
            for given, source in ((settings.own, DYNAMIC_BROKER_CONFIG), (settings.of_all, DYNAMIC_DEFAULT_BROKER_CONFIG))
            for name in names
            if name in given
        ]

    # --- the broker

    def all_brokers(self) -> list[ConfigEntry]:
        """Return the dynamic settings that apply to all brokers, by name."""
        entries = []
        for one in self.broker():
            synonyms = [synonym for synonym in one.synonyms if synonym.source == DYNAMIC_DEFAULT_BROKER_CONFIG]
            if any(synonym.name == one.name for synonym in synonyms):
                value = None if one.is_sensitive else synonyms[0].value
                entries.append(one._replace(value=value, source=DYNAMIC_DEFAULT_BROKER_CONFIG, synonyms=synonyms))
        return entries

    def broker(self) -> list[ConfigEntry]:
        """Return the properties that the broker uses, whether or not they are set, by name."""
        entries: dict[str, ConfigEntry] = {}
        for topic_name, names in _BROKER_NAMES.items():
            for place, name in enumerate(names):
                synonyms = self._broker_synonyms(names[place:], topic_name)
                kind = "INT" if name.endswith((".hours", ".minutes")) else self._kinds[topic_name]
                entries[name] = _entry(name, synonyms[0].value if synonyms else None, kind, synonyms)
        own = {name: (known.kind, _text_or_none(known.default)) for name, known in BROKER_PROPERTIES.items()}
        defaults = ManagerConfig().to_properties()
        own |= {name: (kind, _text_or_none(defaults[name])) for name, kind in _MANAGER_KINDS.items()}
        texts = OTHER_PROPERTIES
        if self._core.config.cluster is not None:
            own |= {name: (known.kind, _text_or_none(known.default)) for name, known in CLUSTER_NUMBERS.items()}
            own |= {name: (own[name][0], str(default)) for name, default in CLUSTER_DEFAULTS.items()}
            texts |= CLUSTER_PROPERTIES - CLUSTER_NUMBERS.keys()
        own |= dict.fromkeys(texts & self._core.config.given.keys(), ("STRING", None))
        for name, (kind, default) in own.items():
            if name not in entries:
                entries[name] = self._own(name, kind, default)
        listeners = self._core.listeners
        bound = ",".join(f"{one.name}://{joined(one.host, one.port)}" for one in listeners)
        advertised = ",".join(f"{one.name}://{joined(one.advertised_host, one.advertised_port)}" for one in listeners)
        entries["listeners"] = self._own("listeners", "STRING", None, bound)
        entries["advertised.listeners"] = self._own("advertised.listeners", "STRING", None, advertised)
        owner = self._core.manager.owner
        entries["node.id"] = self._own("node.id", "INT", "-1", str(owner.node_id))
        entries["broker.id"] = self._own("broker.id", "INT", "-1", str(owner.node_id))
        entries["cluster.id"] = self._own("cluster.id", "STRING", None, owner.cluster_id)
        entries["log.dirs"] = self._own("log.dirs", "STRING", None, str(self._core.manager.directory))
        for name in {*self._core.dynamic_settings.of_all, *self._core.dynamic_settings.own} - entries.keys():
            entries[name] = self._kept(name)
        for name in SENSITIVE_PROPERTIES.union(filter(is_secret, [*self._core.config.given, *entries])):
            entries[name] = self._secret(name, "PASSWORD")
        for name in UNDEFINED_PROPERTIES:
            del entries[name]
            if name in self._core.config.given:
                entries[name] = self._secret(name, "UNKNOWN")
        return [entries[name] for name in sorted(entries)]

    def _own(self, name: str, kind: str, default: str | None, actual: str | None = None) -> ConfigEntry:
        given = self._core.config.given.get(name)
        synonyms = self._dynamic_synonyms((name,))
        if given is not None:
            synonyms.append(Synonym(name, given, STATIC_BROKER_CONFIG))
        if default is not None:
            synonyms.append(Synonym(name, default, DEFAULT_CONFIG))
        return _entry(name, actual or (synonyms[0].value if synonyms else None), kind, synonyms)

    def _secret(self, name: str, kind: str) -> ConfigEntry:
        """Return the entry of a secret property: it shows where the property is set, but not its value."""
        entry = self._own(name, kind, None)
        return _without_values(entry)._replace(is_read_only=is_read_only(name))

    def _kept(self, name: str) -> ConfigEntry:
        """Return the entry of a dynamic setting that is stored but has no effect."""
        entry = self._own(name, *(kind_and_default(name) or ("UNKNOWN", None)))
        return _without_values(entry) if is_sensitive(name) else entry


def _without_values(entry: ConfigEntry) -> ConfigEntry:
    hidden = [synonym._replace(value=None) for synonym in entry.synonyms]
    return entry._replace(value=None, synonyms=hidden, is_sensitive=True)


def _hidden(name: str) -> ConfigEntry:
    """Return the entry of a topic property of a newer Kafka. It may be a secret, so its value is never shown, as in Kafka."""
    synonyms = [Synonym(name, None, DYNAMIC_TOPIC_CONFIG)]
    return ConfigEntry(name, None, DYNAMIC_TOPIC_CONFIG, CONFIG_TYPES["UNKNOWN"], False, synonyms, is_sensitive=True)


def _entry(name: str, value: str | None, kind: str, synonyms: list[Synonym]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else DEFAULT_CONFIG
    with suppress(ValueError):  # Unchanged: another owner of the folder may have accepted it.
        value = None if value is None else _shown(value, kind)
    return ConfigEntry(name, value, source, CONFIG_TYPES[kind], name not in DYNAMIC, synonyms)


def text(value: PropertyValue) -> str:
    """Return a property's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text_or_none(value: PropertyValue | None) -> str | None:
    return None if value is None else text(value)


def _shown(value: str, kind: str) -> str:
    """Return a property's value as Kafka shows it: without blanks around it, numbers and booleans normalized. Raises
    ValueError.
    """
    value = value.strip()
    match kind:
        case "LIST":
            return ",".join(part.strip() for part in value.split(","))
        case "INT" | "SHORT" | "LONG":
            return str(int(value))
        case "DOUBLE":
            return str(float(value))
        case "BOOLEAN":
            return value.lower()
    return value


_MEANING = re.compile(r"(?m)^([a-z][a-z0-9.]*) {2,}(\S+) {2,}(.+)$")


@cache
def meanings() -> dict[str, str]:
    """Return the description of each property, one sentence each, from the tables of the modules that own them."""
    found: dict[str, str] = {}
    for module in (manager_config, broker_config, cluster_config, topic_config):
        found |= {name: meaning for name, _, meaning in _MEANING.findall(module.__doc__ or "")}
    for topic_name, names in _BROKER_NAMES.items():
        for name in names:
            found.setdefault(name, f"{topic_name} of topics that do not set it: {found.get(topic_name, '')}")
    return found
