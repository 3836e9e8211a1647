"""The parameters of a request, checked. Each error names the parameter, what was found, and what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.model import MAX_OFFSET, TopicPartition
from tidelog.near_names import did_you_mean
from tidelog.times import format_time, parse_time
from tidelog.zones import check_zone

MAX_PARTITIONS = 100_000

NAMES = frozenset(
    [
        "after",
        "buckets",
        "decode",
        "desc",
        "encoding",
        "end",
        "end_offset",
        "exact",
        "format",
        "grep",
        "group",
        "header",
        "ignore_case",
        "isolation",
        "key",
        "key_decode",
        "last",
        "limit",
        "offset",
        "order",
        "part",
        "partition",
        "partitions",
        "q",
        "sort",
        "source",
        "start",
        "timestamp",
        "topic",
        "tz",
        "until",
        "where",
        "width",
    ]
)
"""The parameters that endpoints read. An endpoint ignores those of others, because the page sends the same ones to all."""


class Query:
    """A request's parameters. A name may occur several times. Raises InvalidArgumentError for a name that no endpoint reads."""

    def __init__(self, pairs: Iterable[tuple[str, str]], clock: Clock) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in NAMES:
                raise InvalidArgumentError(f"unknown parameter: {name}{did_you_mean(name, NAMES)}")
            self._values.setdefault(name, []).append(value)
        self._clock = clock

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a parameter, except empty ones."""
        return [value for value in self._values.get(name, ()) if value]

    def text(self, name: str) -> str | None:
        """Return a parameter's value; None if it is missing or empty."""
        values = self.all(name)
        if len(values) > 1:
            raise InvalidArgumentError(f"{name} is given {len(values)} times", expected="once")
        return values[0] if values else None

    def required(self, name: str) -> str:
        """Return a parameter that must be given. Raises InvalidArgumentError."""
        value = self.text(name)
        if value is None:
            raise InvalidArgumentError("a parameter is missing", expected=name)
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the choices; the first if the parameter is missing."""
        value = self.text(name) or choices[0]
        if value not in choices:
            raise InvalidArgumentError(name, found=repr(value), expected=" or ".join(choices))
        return value

    def number(self, name: str, default: int | None, low: int, high: int) -> int:
        """Return a whole number within bounds. It is required if there is no default."""
        value = self.required(name) if default is None else self.text(name)
        if value is None:
            assert default is not None
            return default
        found = _whole(value)
        if found is None or not low <= found <= high:
            raise InvalidArgumentError(name, found=repr(value), expected=f"a number from {low} to {high}")
        return found

    def offset(self, name: str) -> int | None:
        """Return an offset, None if the parameter is missing."""
        return None if self.text(name) is None else self.number(name, None, 0, MAX_OFFSET)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is 1 or true."""
        return self.choice(name, ("0", "1", "false", "true")) in ("1", "true")

    def time(self, name: str, start_ms: int | None = None) -> int | None:
        """Return a time in epoch ms. It is given in epoch ms or as on the command line, in the time zone `tz`."""
        value = self.text(name)
        if value is None:
            return None
        zone = self.text("tz")
        if zone is not None:
            check_zone(zone, "tz")
        return parse_time(value, self._clock, zone=zone, start_ms=start_ms, name=name)

    def range(self) -> tuple[int | None, int | None]:
        """Return start and end in epoch ms; the end may be relative to the start."""
        start = self.time("start")
        end = self.time("end", start)
        if start is not None and end is not None and end < start:
            raise InvalidArgumentError(
                "the range ends before its start", found=format_time(end), expected=f"{format_time(start)} or later"
            )
        return start, end

    def partitions(self) -> tuple[int, ...] | None:
        """Return the partitions of a list such as `0,3,8-11`, ascending; None for all."""
        name = "partitions" if self.text("partitions") else "partition"
        text = self.text(name)
        if text is None:
            return None
        found: set[int] = set()
        for part in text.split(","):
            first, dash, last = part.partition("-")
            low, high = _whole(first), _whole(last if dash else first)
            if low is None or high is None or not low <= high < low + MAX_PARTITIONS or high > 2**31 - 1:
                raise InvalidArgumentError(name, found=repr(text), expected="numbers and ranges, such as 0,3,8-11")
            found.update(range(low, high + 1))
        return tuple(sorted(found))

    def key(self) -> TopicPartition:
        """Return the topic and the partition, both of which are required."""
        return TopicPartition(self.required("topic"), self.number("partition", None, 0, 2**31 - 1))


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None
