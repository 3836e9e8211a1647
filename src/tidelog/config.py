"""Kafka's topic properties, typed. Only what something in Tidelog honours is here.

=====================  ===========  =======================================================================
property               default      meaning
=====================  ===========  =======================================================================
segment.bytes          1073741824   a segment never grows beyond this many bytes
segment.ms             604800000    event time between a segment's first batch and the one that rolls it
segment.jitter.ms      0            up to this much is taken off segment.ms, once for each segment
segment.index.bytes    10485760     room of each index; a full index rolls the segment
index.interval.bytes   4096         bytes of log between two index entries
=====================  ===========  =======================================================================

Names, defaults and ranges are those of Apache Kafka 3.9 (storage specification, §17). Any layer may import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from tidelog.errors import InvalidArgumentError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class _Property(NamedTuple):
    name: str
    minimum: int
    maximum: int


def _integer(name: str, default: int, minimum: int, maximum: int) -> Any:
    return field(default=default, metadata={"property": _Property(name, minimum, maximum)})


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """How one partition's log is written. Units are in the field names; ranges are checked on construction.

    Raises InvalidArgumentError, naming Kafka's property, for a value outside Kafka's range.
    """

    segment_bytes: int = _integer("segment.bytes", 1 << 30, 14, INT32_MAX)
    segment_ms: int = _integer("segment.ms", 7 * 24 * 3600 * 1000, 1, INT64_MAX)
    segment_jitter_ms: int = _integer("segment.jitter.ms", 0, 0, INT64_MAX)
    segment_index_bytes: int = _integer("segment.index.bytes", 10 << 20, 4, INT32_MAX)
    index_interval_bytes: int = _integer("index.interval.bytes", 4096, 0, INT32_MAX)

    def __post_init__(self) -> None:
        for one in fields(self):
            prop: _Property = one.metadata["property"]
            value = getattr(self, one.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidArgumentError(f"{prop.name} is a whole number", found=repr(value))
            if not prop.minimum <= value <= prop.maximum:
                raise InvalidArgumentError(
                    f"{prop.name} is out of range", found=value, expected=f"{prop.minimum} to {prop.maximum}"
                )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> LogConfig:
        """Build from Kafka's property names and texts; raise InvalidArgumentError for an unknown name or bad number."""
        names = {one.metadata["property"].name: one.name for one in fields(cls)}
        values: dict[str, int] = {}
        for name, text in properties.items():
            if name not in names:
                raise InvalidArgumentError("unknown topic property", found=name, expected=", ".join(sorted(names)))
            try:
                values[names[name]] = int(text)
            except ValueError:
                raise InvalidArgumentError(f"{name} is a whole number", found=repr(text)) from None
        return cls(**values)

    def to_properties(self) -> dict[str, int]:
        """Return the settings under Kafka's names."""
        return {one.metadata["property"].name: getattr(self, one.name) for one in fields(self)}
