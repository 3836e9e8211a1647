"""Scales, and where an axis has its ticks.

| kind | a linear axis steps by | a logarithmic one | written |
|---|---|---|---|
| NUMBER | 1, 2, 5 × 10ⁿ | powers of ten | 250, 12,000, 3M |
| BYTES | powers of two | powers of two | 4 KiB |
| MILLIS | what a clock steps by | 1, 10, 100 of a unit | 30 s, 6 h |
| TIME (epoch ms) | what a clock and a calendar step by | - | 06:00, 15 Nov |
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from studies.quantities import DURATION_UNITS, show_bytes, show_float

_SECOND, _MINUTE, _HOUR, _DAY = (unit_ms for _, unit_ms in DURATION_UNITS[1:])
_CLOCK_STEPS = tuple(
    count * unit
    for unit, counts in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (_SECOND, (1, 2, 5, 10, 15, 30)),
        (_MINUTE, (1, 2, 5, 10, 15, 30)),
        (_HOUR, (1, 2, 3, 6, 12)),
        (_DAY, (1, 2, 3, 7, 14, 30, 60, 120, 365, 730, 1825, 3650)),
    )
    for count in counts
)
_LOG_DURATIONS = tuple(
    count * unit
    for unit, counts in ((1, (1, 10, 100)), (_SECOND, (1, 10)), (_MINUTE, (1, 10)), (_HOUR, (1, 10)), (_DAY, (1, 10, 100, 1000)))
    for count in counts
)


class Kind(enum.Enum):
    """What an axis counts."""

    NUMBER = "number"
    BYTES = "bytes"
    MILLIS = "ms"
    TIME = "time"


class Tick(NamedTuple):
    """One tick: its value, and what is written there, in one line or two."""

    at: float
    label: str
    second_line: str = ""


@dataclass(frozen=True)
class Scale:
    """Values to places: `low` to `high` become `first` to `last`."""

    low: float
    high: float
    first: float
    last: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; on a logarithmic scale what is not above its low end is put there."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


def kind_of(label: str, is_time: bool = False) -> Kind:
    """Return what an axis counts, by the unit that its label names."""
    if is_time:
        return Kind.TIME
    if re.search(r"\bbytes\b", label):
        return Kind.BYTES
    return Kind.MILLIS if re.search(r"\b(ms|milliseconds)\b", label) else Kind.NUMBER


def title(label: str, kind: Kind, log: bool) -> str:
    """Return an axis's title: the label without a unit that the ticks name themselves, with what else there is to know."""
    if kind is Kind.MILLIS:
        label = re.sub(r",? *[(\[]?(in )?ms[)\]]?$", "", label)
    return label + (" (UTC)" if kind is Kind.TIME and "UTC" not in label else "") + (" (log scale)" if log else "")


def domain(values: Sequence[float], *, log: bool, from_zero: bool) -> tuple[float, float]:
    """Return the ends of an axis that has room for all values. A logarithmic one leaves out what is not above zero."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        # A bar of the smallest value is seen, too: it does not end on the axis.
        low = 10.0 ** math.floor(math.log10(low) - 0.05) if from_zero else low / 1.2
        return low, max(high * 1.2, low * 10)
    if from_zero or (low > 0 and low < 0.4 * high):
        low = min(low, 0.0)
    if from_zero:
        high = max(high, 0.0)
    if low == high:
        return (low - 1, high + 1) if low else (0.0, 1.0)
    return low, high


def ticks(low: float, high: float, kind: Kind, *, log: bool = False, wanted: int = 5) -> list[Tick]:
    """Return at most about `wanted` ticks from `low` to `high`."""
    if log:
        return _log_ticks(low, high, kind, wanted)
    step = _step(high - low, kind, wanted)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = [number * step for number in range(first, last + 1)]
    if kind is Kind.TIME:
        return _time_ticks(places, step, high - low)
    return [Tick(place, show_tick(place, kind)) for place in places]


def show_tick(value: float, kind: Kind) -> str:
    """Return a value as an axis or a bar has it."""
    if kind is Kind.BYTES:
        return show_bytes(value)
    if kind is Kind.MILLIS:
        # One unit only, there is little room.
        unit, unit_ms = next(((u, ms) for u, ms in reversed(DURATION_UNITS) if abs(value) >= ms), DURATION_UNITS[0])
        return f"{show_float(value / unit_ms)} {unit}" if value else "0"
    return f"{show_float(value / 1e6)}M" if abs(value) >= 1e6 else show_float(value)


def _step(span: float, kind: Kind, wanted: int) -> float:
    rough = span / wanted
    if kind in (Kind.MILLIS, Kind.TIME) and rough > 0.5:
        return float(
            next((step for step in _CLOCK_STEPS if step >= rough), _CLOCK_STEPS[-1] * math.ceil(rough / _CLOCK_STEPS[-1]))
        )
    if kind is Kind.BYTES and rough > 8:
        return 2.0 ** math.ceil(math.log2(rough))
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * (1 - 1e-9))


def _log_ticks(low: float, high: float, kind: Kind, wanted: int) -> list[Tick]:
    if kind is Kind.MILLIS:
        places = [float(place) for place in _LOG_DURATIONS if low <= place <= high]
        if len(places) >= 2:
            return [Tick(place, show_tick(place, kind)) for place in _thinned(places, wanted)]
    base = 2.0 if kind is Kind.BYTES and low >= 1 else 10.0
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    places = [base**power for power in range(first, last + 1)]
    if base == 10 and len(places) < 3:
        places = sorted(
            [*places, *(f * 10.0**p for p in range(first - 1, last + 1) for f in (2, 5) if low <= f * 10.0**p <= high)]
        )
    return [Tick(place, show_tick(place, kind)) for place in _thinned(places, wanted)]


def _thinned(places: list[float], wanted: int) -> list[float]:
    return places[:: max(1, math.ceil(len(places) / wanted))]


def _time_ticks(places: list[float], step: float, span: float) -> list[Tick]:
    ticks = []
    day = ""
    for place in places:
        time = datetime.fromtimestamp(place / 1000, UTC)
        date = f"{time.day} {time:%b}" + (f" {time.year}" if span > 360 * _DAY else "")
        if step >= _DAY:
            ticks.append(Tick(place, date))
            continue
        clock = (
            f"{time:%H:%M}"
            if step >= _MINUTE
            else f"{time:%H:%M:%S}"
            if step >= _SECOND
            else f"{time:%S}.{time.microsecond // 1000:03}"
        )
        # The day stands below the first of its times.
        ticks.append(Tick(place, clock, date if date != day else ""))
        day = date
    return ticks
