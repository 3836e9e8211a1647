"""The unit of an axis, and its ticks.

| kind | steps of a linear axis | of a logarithmic one | labels |
|---|---|---|---|
| NUMBER | 1, 2, 5 × 10ⁿ | powers of ten | 250, 12,000, 3M |
| BYTES | powers of two | powers of two | 4 KiB |
| MILLIS | seconds, minutes, hours, days | powers of ten | 30 s, 6 h |
| TIME (epoch ms) | clock and calendar units | - | 06:00, 15 Nov |
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, MultipleLocator, NullLocator

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
_MOST_TICKS = 5


class Kind(enum.Enum):
    """The kind of quantity on an axis."""

    NUMBER = "number"
    BYTES = "bytes"
    MILLIS = "ms"
    TIME = "time"


def kind_of(label: str, is_time: bool = False) -> Kind:
    """Return the kind of an axis from the unit in its label."""
    if is_time:
        return Kind.TIME
    if re.search(r"\bbytes\b", label):
        return Kind.BYTES
    return Kind.MILLIS if re.search(r"\b(ms|milliseconds)\b", label) else Kind.NUMBER


def title(label: str, kind: Kind, log: bool) -> str:
    """Return an axis's title: the label without a unit that the ticks already show, plus any further note."""
    if kind is Kind.MILLIS:
        label = re.sub(r",? *[(\[]?(in )?ms[)\]]?$", "", label)
    return label + (" (UTC)" if kind is Kind.TIME and "UTC" not in label else "") + (" (log scale)" if log else "")


def show_value(value: float, kind: Kind) -> str:
    """Return a value as text for an axis or a bar."""
    if kind is Kind.BYTES:
        return show_bytes(value)
    if kind is Kind.MILLIS:
        # Show one unit only, because there is little room.
        unit, unit_ms = next(((u, ms) for u, ms in reversed(DURATION_UNITS) if abs(value) >= ms), DURATION_UNITS[0])
        return f"{show_float(value / unit_ms)} {unit}" if value else "0"
    return f"{show_float(value / 1e6)}M" if abs(value) >= 1e6 else show_float(value)


def set_ticks(axis: Axis, low: float, high: float, kind: Kind, *, log: bool) -> None:
    """Set a few ticks on an axis from `low` to `high`, in the style of its kind."""
    axis.set_minor_locator(NullLocator())
    if log:
        axis.set_major_locator(LogLocator(4.0 if kind is Kind.BYTES and low >= 1 else 10.0, numticks=_MOST_TICKS))
    elif kind is Kind.TIME:
        places = _steps(low, high, _clock_step((high - low) / 4))
        axis.set_major_locator(FixedLocator(places))
        axis.set_ticklabels(_time_labels(places))
        return
    elif kind is Kind.MILLIS and high - low > 2:
        axis.set_major_locator(MultipleLocator(_clock_step((high - low) / _MOST_TICKS)))
    elif kind is Kind.BYTES and high - low > 32:
        axis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2((high - low) / _MOST_TICKS))))
    else:
        axis.set_major_locator(MaxNLocator(_MOST_TICKS, steps=[1, 2, 5, 10]))
    write: Any = lambda value, place: show_value(value, kind)  # noqa: E731
    axis.set_major_formatter(FuncFormatter(write))


def _clock_step(rough: float) -> float:
    last = _CLOCK_STEPS[-1]
    return float(next((step for step in _CLOCK_STEPS if step >= rough), last * math.ceil(rough / last)))


def _steps(low: float, high: float, step: float) -> list[float]:
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _time_labels(places: Sequence[float]) -> list[str]:
    """Return clock times with the day below the first time of each day, or only days if the steps are days."""
    times = [datetime.fromtimestamp(place / 1000, UTC) for place in places]
    days = [f"{time.day} {time:%b}" + (f" {time.year}" if times[0].year != times[-1].year else "") for time in times]
    if not any(place % _DAY for place in places):
        return days
    clock = "%H:%M:%S" if any(place % _MINUTE for place in places) else "%H:%M"
    firsts = {day: days.index(day) for day in days}
    return [
        f"{time:{clock}}" + (f"\n{day}" if firsts[day] == number else "")
        for number, (time, day) in enumerate(zip(times, days, strict=True))
    ]
