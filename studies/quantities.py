"""Numbers, sizes and durations as text: three significant digits, in a readable unit."""

from __future__ import annotations

import math
from itertools import pairwise

DURATION_UNITS = (("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000))
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def show_float(value: float) -> str:
    """Return a number with three significant digits."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if abs(value) < 0.0001:
        return f"{value:.2e}"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    text = f"{rounded:,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_bytes(value: float) -> str:
    """Return a size in bytes with three significant digits and its unit."""
    size, unit = value, 0
    # A value that would round to 1,024 of a unit is shown in the next one.
    while abs(size) >= 1023.5 and unit < len(SIZE_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.0f} {SIZE_UNITS[unit]}" if abs(size) >= 1000 else f"{show_float(size)} {SIZE_UNITS[unit]}"


def show_millis(value: float) -> str:
    """Return a duration in ms in its largest unit with three significant digits; minutes and hours also show the remainder."""
    if not math.isfinite(value):
        return show_float(value)
    size = abs(value)
    sign = "−" if value < 0 else ""
    if size < 1000:
        return f"{sign}{show_float(size)} ms"
    if size < 59_950:
        return f"{sign}{show_float(size / 1000)} s"
    for (smaller, smaller_ms), (unit, unit_ms) in pairwise(DURATION_UNITS[1:4]):
        whole, rest = divmod(round(size / smaller_ms), unit_ms // smaller_ms)
        if whole < (60 if unit == "min" else 24):
            return f"{sign}{whole} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{sign}{show_float(size / DURATION_UNITS[-1][1])} d"
