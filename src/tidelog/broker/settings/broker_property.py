"""A property of a broker: its name, Kafka's type, and how its text is parsed.

The functions make fields of a dataclass (`BrokerConfig`, `ClusterConfig`). `properties_of` finds these fields, and `parsed` reads
their values from a broker's properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, NamedTuple

from tidelog.broker.requests.listeners import words
from tidelog.config import INT32_MAX, PropertyValue, parse_flag
from tidelog.errors import InvalidArgumentError


class BrokerProperty(NamedTuple):
    """A property's name and Kafka's type; `parse` converts its text and raises InvalidArgumentError."""

    name: str
    kind: str
    parse: Callable[[PropertyValue], Any]
    default: PropertyValue | None


def integer(name: str, default: int, minimum: int, maximum: int = INT32_MAX, kind: str | None = None) -> Any:
    """Return a field for a whole number."""

    def parse(value: PropertyValue) -> int:
        try:
            number = int(value.strip()) if isinstance(value, str) else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidArgumentError(f"{name} must be a whole number", found=repr(value))
        if not minimum <= number <= maximum:
            raise InvalidArgumentError(f"{name} is out of range", found=number, expected=f"{minimum} to {maximum}")
        return number

    kind = kind or ("INT" if maximum <= INT32_MAX else "LONG")
    return field(default=default, metadata={"property": BrokerProperty(name, kind, parse, default)})


def flag(name: str, default: bool) -> Any:
    """Return a field for true or false."""

    def parse(value: PropertyValue) -> bool:
        return parse_flag(name, value)

    return field(default=default, metadata={"property": BrokerProperty(name, "BOOLEAN", parse, default)})


def text(name: str, default: str | None = None) -> Any:
    """Return a field for text; a missing or empty text gives the default."""
    return field(
        default=default,
        metadata={"property": BrokerProperty(name, "STRING", lambda value: str(value).strip() or default, default)},
    )


def choice(name: str, default: str, known: tuple[str, ...]) -> Any:
    """Return a field for one of several words. Case is ignored."""

    def parse(value: PropertyValue) -> str:
        word = str(value).strip().lower()
        if word not in known:
            raise InvalidArgumentError(f"{name} has an unknown value", found=repr(value), expected=" or ".join(known))
        return word

    return field(default=default, metadata={"property": BrokerProperty(name, "STRING", parse, default)})


def counts(name: str) -> Any:
    """Return a dataclass field for the property `name`, whose value is a comma-separated list of `host:count` pairs."""

    def parse(value: PropertyValue) -> tuple[tuple[str, int], ...]:
        found = []
        for word in words(value):
            host, _, count = word.rpartition(":")
            if not host or not count.isdigit():
                raise InvalidArgumentError(
                    f"{name} must be a comma-separated list of host:count pairs", found=repr(word), expected="host:count"
                )
            found.append((host, int(count)))
        return tuple(found)

    return field(default=(), metadata={"property": BrokerProperty(name, "STRING", parse, "")})


def listed(name: str, default: str, known: Mapping[str, str], needs: str | None = None) -> Any:
    """Return a field for a comma-separated list of words. `known` maps each word, in lower case, to its value; `needs` is a
    value that the list must have.
    """

    def parse(value: PropertyValue) -> tuple[str, ...]:
        found = [known.get(word.lower()) for word in words(value)]
        if not found or None in found or (needs is not None and needs not in found):
            expected = f"one or more of {', '.join(known)}" + (f", and always {needs}" if needs else "")
            raise InvalidArgumentError(f"{name} has a missing or unknown value", found=repr(value), expected=expected)
        return tuple(dict.fromkeys(filter(None, found)))

    return field(default=parse(default), metadata={"property": BrokerProperty(name, "LIST", parse, default)})


def properties_of(config: Any) -> dict[str, BrokerProperty]:
    """Return the properties that a dataclass has fields for, by name."""
    return {one.metadata["property"].name: one.metadata["property"] for one in fields(config) if "property" in one.metadata}


def parsed(config: Any, properties: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Return the values for the fields of a dataclass, by field name. Raises InvalidArgumentError."""
    values: dict[str, Any] = {}
    for one in fields(config):
        known = one.metadata.get("property")
        if known is not None and known.name in properties:
            values[one.name] = known.parse(properties[known.name])
    return values
