"""A scan's arguments, checked and normalized: times, isolation, end, partitions, offsets.

| argument | meaning |
|---|---|
| start, end | `start <= timestamp < end`; each is optional. Fractions of a millisecond are floored (`tidelog.times`) |
| isolation | `read_uncommitted`, or `read_committed`: no records of aborted or unfinished transactions |
| until | `log_end`: everything on disk; `high_watermark`: records on every in-sync replica when the checkpoint was written |
| offsets | `{partition: (first, end)}`, end exclusive, either may be None |

`plan` checks requests with this module. Each kind of source uses it to choose partitions and to clip their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.times import Time, format_time, parse_time
from tidelog.zones import check_zone

LOG_END = "log_end"
HIGH_WATERMARK = "high_watermark"

OffsetRanges = Mapping[int, tuple[int | None, int | None]]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`start_ms <= timestamp < end_ms`; None means no bound."""

    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the range has a bound. Records without a timestamp are outside a bounded range."""
        return self.start_ms is not None or self.end_ms is not None

    @property
    def is_empty(self) -> bool:
        """Whether the range contains no timestamp."""
        return self.end_ms is not None and self.end_ms <= max(0, self.start_ms or 0)

    def __str__(self) -> str:
        start = "..." if self.start_ms is None else format_time(self.start_ms)
        end = "..." if self.end_ms is None else format_time(self.end_ms)
        return f"[{start}, {end})"


def time_range(start: Time | None, end: Time | None, clock: Clock, *, zone: str | None = None) -> TimeRange:
    """Return the bounds in epoch milliseconds. `zone` is the time zone of times that name none (`parse_time`).

    Raises:
        InvalidArgumentError: an invalid time, or an end before its start.
    """
    if zone is not None:
        check_zone(zone, "tz")
    start_ms = None if start is None else parse_time(start, clock, zone=zone, name="start")
    end_ms = None if end is None else parse_time(end, clock, zone=zone, start_ms=start_ms, name="end")
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise InvalidArgumentError(f"the range ends at {format_time(end_ms)}, before its start {format_time(start_ms)}")
    return TimeRange(start_ms, end_ms)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value` when it is one of `choices`; raise InvalidArgumentError otherwise."""
    if value not in choices:
        raise InvalidArgumentError(f"unknown {name}", found=repr(value), expected=" or ".join(choices))
    return value


def check_positive(name: str, value: int | None) -> int | None:
    """Return `value` when it is None or at least 1; raise InvalidArgumentError otherwise."""
    if value is not None and value < 1:
        raise InvalidArgumentError(f"{name} must be positive", found=value)
    return value


def check_offsets(offsets: OffsetRanges | None) -> OffsetRanges:
    """Return `offsets`, or an empty dict for None. Raise InvalidArgumentError if they are not ranges of offsets, or if a range
    ends before its start.
    """
    for partition, (first, end) in _ranges(offsets):
        if first is not None and end is not None and end < first:
            raise InvalidArgumentError(f"the offsets of partition {partition} end at {end}, before their start {first}")
    return offsets or {}


def _ranges(offsets: OffsetRanges | None) -> list[tuple[int, tuple[int | None, int | None]]]:
    try:
        ranges = [(partition, (first, end)) for partition, (first, end) in dict(offsets or {}).items()]
        numbers = [number for partition, pair in ranges for number in (partition, *(one for one in pair if one is not None))]
        if all(hasattr(number, "__index__") for number in numbers):
            return ranges
    except (TypeError, ValueError):
        pass
    raise InvalidArgumentError(
        "offsets", found=repr(offsets), expected="{partition: (first, end)}, where first and end may be None"
    )


def clip(
    name: str, start_offset: int, end_offset: int, wanted: tuple[int | None, int | None] | None, notes: list[str]
) -> tuple[int, int]:
    """Return the requested offsets, clipped to `[start_offset, end_offset)` of partition `name`. Add a sentence to `notes` if the
    request starts before that range, and one if it ends after it.
    """
    first, end = wanted or (None, None)
    if first is not None:
        if first < start_offset:
            notes.append(f"{name}: offsets [{first}, {start_offset}) no longer exist: the log starts at {start_offset}")
        start_offset = max(start_offset, first)
    if end is not None:
        if end > end_offset:
            notes.append(f"{name}: offsets [{end_offset}, {end}) are past the end of the readable range, {end_offset}")
        end_offset = min(end_offset, end)
    return start_offset, max(start_offset, end_offset)


def wanted_partitions(existing: Iterable[int], partitions: Iterable[int] | None, offsets: OffsetRanges | None) -> list[int]:
    """Return the partitions to read, ascending: `partitions` if given, otherwise those in `offsets`, otherwise all that exist.

    A named partition that does not exist is included; opening it fails.
    """
    if partitions is not None:
        wanted = set(partitions)
        stray = sorted(set(offsets or ()) - wanted)
        if stray:
            raise InvalidArgumentError(f"offsets are given for partitions that this scan does not read: {stray}")
        return sorted(wanted)
    return sorted(offsets) if offsets is not None else sorted(existing)
