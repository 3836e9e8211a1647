"""The options of a stream: the options of a load without an end, and the limits of a micro-batch.

| option | |
|---|---|
| maxOffsetsPerTrigger | the most offsets in a batch, counted as in the connector: gaps in a compacted log count too |
| minOffsetsPerTrigger, maxTriggerDelay | a batch waits for this many offsets, or until this time after the last batch |
| maxBytesPerTrigger | the most uncompressed bytes in a batch, by an estimate (`admission.within_bytes`) |
| maxTimePerTrigger | the longest span of log time in a batch (`admission.TimeLimit` has the rule) |
| maxRecordsPerPartition | the most offsets in a task |

Durations are written as in Tidelog (`10m`, `1h30m`, `500ms`) or as in Spark (`250us`); a number without a unit is milliseconds.
Sizes are bytes, or written as `512m` or `1g`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidelog.clock import SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.spark.option_values import positive
from tidelog.spark.options import Bound, ReadOptions, parse_options
from tidelog.times import parse_duration

TRIGGER_DELAY_MS = 15 * 60_000
"""The connector's default."""

BATCH_BYTES = 1 << 30
"""The default of maxBytesPerTrigger: a backlog of any size becomes batches that a sink can commit in time."""

_SIZE = re.compile(r"(\d{1,15})\s*(?:([kmgt])i?)?b?", re.ASCII)
_MICROSECONDS = re.compile(r"(\d{1,15})\s*us", re.ASCII)
_STARTING = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream, with defaults filled in."""

    read: ReadOptions
    """The range to read. If only the option startTime sets the start, then `starting` is a bound that names startTime."""
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    max_time_ms: int | None
    max_task_offsets: int | None
    max_bytes: int | None = BATCH_BYTES
    """The most bytes in a batch; None for no limit."""


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse a stream's options. Raises an InvalidArgumentError that names the option for any error in the options."""
    given = {key.lower(): value for key, value in options.items()}
    read = parse_options(options, SystemClock(), is_stream=True)
    if read.start_ms is not None and not any(name in given for name in _STARTING):
        read = replace(read, starting=Bound("startTime", everywhere=read.start_ms, by_time=True))
    most, least = positive(given, "maxOffsetsPerTrigger"), positive(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidArgumentError(f"option minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
    max_time_ms = _span(given, "maxTimePerTrigger")
    if max_time_ms == 0:
        raise InvalidArgumentError("option maxTimePerTrigger must not be 0: every batch would be empty")
    delay_ms = _span(given, "maxTriggerDelay")
    return StreamOptions(
        read=read,
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=TRIGGER_DELAY_MS if delay_ms is None else delay_ms,
        max_time_ms=max_time_ms,
        max_task_offsets=positive(given, "maxRecordsPerPartition"),
        max_bytes=_size(given, "maxBytesPerTrigger"),
    )


def _size(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower(), str(BATCH_BYTES)).strip().lower()
    if text == "unlimited":
        return None
    match = _SIZE.fullmatch(text)
    size_bytes = 0 if match is None else int(match[1]) << {"k": 10, "m": 20, "g": 30, "t": 40}.get(match[2] or "", 0)
    if not size_bytes:
        raise InvalidArgumentError(f"option {option}: expected a number of bytes, e.g. 512m or 1g, or unlimited; found {text!r}")
    return size_bytes


def _span(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    text = text.strip().lower()
    if match := _MICROSECONDS.fullmatch(text):
        return int(match[1]) // 1_000
    try:
        return parse_duration(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {option}: {error}") from None
