"""Dynamic settings of the broker (KIP-226): their names, their checks, and how they take effect.

| set for | by the resource | takes precedence over |
|---|---|---|
| this broker | broker, its id | the settings of all brokers |
| all brokers | broker, empty name | the properties at startup |

Dynamic settings are stored in the metadata log (`storage.broker_settings`), where Kafka will find them if it serves the folder
later. Every setting that is dynamic in Kafka is therefore accepted, even if it has no effect here (threads). Unknown names are
stored as well, as Kafka does for plugins. Settings of listeners, TLS and SASL are refused, because they cannot change here.

The checks and their order are Kafka's; each error is an INVALID_REQUEST. `Core` has a `DynamicSettings`. Use it only on the event
loop's thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf

from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES, DYNAMIC_PROPERTIES, OTHER_PROPERTIES, BrokerConfig
from tidelog.broker.settings.unused_properties import is_unused
from tidelog.config import BROKER_NAMES, INT32_MAX, INT64_MAX, LogConfig, unaliased
from tidelog.errors import InvalidArgumentError
from tidelog.storage.broker_settings import ALL_BROKERS
from tidelog.storage.log_manager import LogManager
from tidelog.storage.manager_config import DYNAMIC_NUMBERS, MANAGER_PROPERTIES, ManagerConfig
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode

STATIC_ONLY = frozenset(
    {
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.retention.hours",
        "log.retention.minutes",
        "log.message.format.version",
    }
)
"""Topic defaults that Kafka reads only at startup. For each name with a coarse unit, the name with a finer unit is dynamic."""

DYNAMIC_DEFAULTS = frozenset(BROKER_NAMES) - STATIC_ONLY

_MOST = str(INT64_MAX)
# Kafka's settings without an effect here: kind, smallest value, default.
_UNUSED: Mapping[str, tuple[str, float, str]] = {
    "background.threads": ("INT", 1, "10"),
    "num.io.threads": ("INT", 1, "8"),
    "num.network.threads": ("INT", 1, "3"),
    "num.replica.fetchers": ("INT", 1, "1"),
    "log.cleaner.threads": ("INT", 0, "1"),
    "log.cleaner.io.buffer.size": ("INT", 0, "524288"),
    "log.cleaner.io.buffer.load.factor": ("DOUBLE", -inf, "0.9"),
    "log.cleaner.io.max.bytes.per.second": ("DOUBLE", -inf, "1.7976931348623157E308"),
    "metric.reporters": ("LIST", 0, ""),
    "remote.fetch.max.wait.ms": ("INT", 1, "500"),
    "remote.log.index.file.cache.total.size.bytes": ("LONG", 1, "1073741824"),
    "remote.log.manager.copy.max.bytes.per.second": ("LONG", 1, _MOST),
    "remote.log.manager.fetch.max.bytes.per.second": ("LONG", 1, _MOST),
}

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
# Settings that cannot be set at startup, only later (KIP-73), in bytes per second, at least 0.
_THROTTLES = frozenset({LEADER_RATE, FOLLOWER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second"})

DYNAMIC = DYNAMIC_DEFAULTS | DYNAMIC_NUMBERS | DYNAMIC_PROPERTIES | _UNUSED.keys() | _THROTTLES
"""All dynamic settings."""

_OF_LISTENERS = re.compile(r"(?:advertised\.)?listeners$|listener\.|ssl\.|sasl\.|principal\.builder\.|connections\.max\.reauth\.")

_MIN_DEDUPE_BYTES = 1 << 20


class DynamicSettings:
    """Checks and applies changes of the broker's settings."""

    def __init__(self, manager: LogManager, static: BrokerConfig, configure: Callable[[BrokerConfig], None]) -> None:
        """`static` are the settings at startup; `configure` gets the effective ones, now and after each change."""
        self._manager = manager
        self._static = static
        self._configure = configure
        self._throttles: dict[str, int] = {}
        self.take_over()

    @property
    def of_all(self) -> Mapping[str, str]:
        """The settings for all brokers."""
        return self._manager.settings.of(ALL_BROKERS)

    def of(self, broker: str) -> Mapping[str, str]:
        """Return the settings for a broker, by its id, or for all brokers ("")."""
        return self._manager.settings.of(str(int(broker)) if broker else ALL_BROKERS)

    @property
    def own(self) -> Mapping[str, str]:
        """The settings for this broker only."""
        return self._manager.settings.of(str(self._manager.owner.node_id))

    def check(self, settings: Mapping[str, str], *, for_all: bool) -> None:
        """Raise ApiError if these settings are not valid for this broker or for all brokers."""
        _refuse("these settings cannot change while a broker runs", filter(_is_static, settings))
        _refuse("listeners, TLS and SASL cannot change while this broker runs", filter(_OF_LISTENERS.match, settings))
        for name, value in settings.items():
            try:
                _check_value(name, value)
            except InvalidArgumentError as error:
                # The error has no secret: values of sensitive settings are not checked.
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}={value}: {error}") from None
        merged = {**self.of_all, **settings} if for_all else {**self.of_all, **self.own, **settings}
        defaults = {name: value for name, value in merged.items() if name in DYNAMIC_DEFAULTS}
        try:
            ManagerConfig.from_properties({**self._manager.config.topic_defaults, **unaliased(defaults, warn=False)})
        except InvalidArgumentError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def change(self, name: str, settings: Mapping[str, str]) -> Steps[None]:
        """Replace the settings of all brokers (""), or of this broker (its id), with settings that were checked before.
        Raises StorageError.
        """
        yield from self._manager.settings.change(str(int(name)) if name else ALL_BROKERS, settings)
        self.take_over()

    def throttled_rate(self, name: str) -> int:
        """Return the value of a replication throttle setting, in bytes per second; unlimited if it is not set."""
        return self._throttles.get(name, INT64_MAX)

    def take_over(self) -> None:
        """Apply the settings in the metadata, except those of logs, which the log manager applies."""
        settings = self._manager.settings.all()
        self._configure(self._static.with_dynamic(settings))
        self._throttles = {name: _number(settings[name], INT64_MAX) for name in _THROTTLES if _is_rate(settings.get(name))}


def kind_and_default(name: str) -> tuple[str, str | None] | None:
    """Return the type and default that Kafka defines for a setting that Tidelog does not accept at startup, or None if Kafka does
    not define the setting.
    """
    if name in _THROTTLES:
        return "LONG", None
    found = _UNUSED.get(name)
    return None if found is None else (found[0], found[2])


def is_sensitive(name: str) -> bool:
    """Whether the value of a dynamic setting must be hidden. A setting that Kafka does not know may be a secret."""
    return name not in DYNAMIC


def _is_static(name: str) -> bool:
    """Whether a setting is read only at startup."""
    if name in DYNAMIC or _OF_LISTENERS.match(name):
        return False
    return name in STATIC_ONLY or name in BROKER_PROPERTIES or name in OTHER_PROPERTIES | MANAGER_PROPERTIES or is_unused(name)


def _refuse(reason: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{reason}: {', '.join(found)}")


def _check_value(name: str, value: str) -> None:
    """Raise InvalidArgumentError for an invalid value of a setting."""
    value = value.strip()
    if name in _UNUSED:
        kind, least, _ = _UNUSED[name]
        parse = _PARSERS.get(kind)
        if parse is not None and not parse(value) >= least:
            raise InvalidArgumentError("out of range", found=value, expected=f"at least {least}")
    elif name in _THROTTLES:
        if _number(value, INT64_MAX) < 0:
            raise InvalidArgumentError("out of range", found=value, expected="at least 0")
    elif name in DYNAMIC_PROPERTIES:
        BROKER_PROPERTIES[name].parse(value)
    if name in DYNAMIC_DEFAULTS:
        LogConfig.from_properties(unaliased({name: value}, warn=False))
    elif name in DYNAMIC_NUMBERS:
        ManagerConfig.from_properties({name: value})
        if name == "log.cleaner.dedupe.buffer.size" and int(value) <= _MIN_DEDUPE_BYTES:
            raise InvalidArgumentError("too small", found=value, expected="more than 1 MiB")


def _is_rate(value: str | None) -> bool:
    """Whether the value is usable as a rate. It may be anything, because another owner of the folder may have accepted it."""
    return value is not None and value.strip().isdecimal() and int(value) <= INT64_MAX


def _number(value: str, most: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise InvalidArgumentError("a whole number is expected", found=repr(value)) from None
    if number > most:
        raise InvalidArgumentError("out of range", found=value, expected=f"at most {most}")
    return number


def _fraction(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidArgumentError("a number is expected", found=repr(value)) from None


_PARSERS: Mapping[str, Callable[[str], float]] = {
    "INT": lambda value: _number(value, INT32_MAX),
    "LONG": lambda value: _number(value, INT64_MAX),
    "DOUBLE": _fraction,
}
