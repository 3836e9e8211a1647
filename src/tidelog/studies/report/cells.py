"""A cell of a table as text.

| cell | shown as |
|---|---|
| None | none |
| bool | yes, no |
| int | 1,234,567 |
| float | three significant digits: 0.00123, 12.3, 1,230 |
| Bytes | 999 B, 1.5 KiB, 3.38 GiB; the exact number when pointed at |
| Millis | 5 ms, 1.5 s, 2 min 30 s, 6 h, 2.5 d; the exact number when pointed at |
| str | as it is, to the right if it is a share or a factor; what stands between backticks as code |
| Claim | claimed, measured, verdict |
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

from tidelog.studies.chapter import Bytes, Cell, Claim, Millis, Verdict

DURATION_UNITS = (("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000))
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

SIGNS = {Verdict.CONFIRMED: "✓", Verdict.REFUTED: "✗", Verdict.PARTLY: "◐", Verdict.NOT_MEASURABLE: "–"}
"""What stands before a verdict's word."""

_NUMBER = re.compile(r"[-−+]?\d[\d,.]*( ?%| ?[x×]| of \d[\d,]*)?")
"""Words that are a number all the same: a share, a factor, some of all."""

_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class CellView:
    """A cell as the template takes it."""

    kind: str
    """A CSS class: "number", "text", "nothing" or "claim"."""
    text: str
    exact: str = ""
    """The exact value, where `text` is rounded."""
    claim: Claim | None = None


def view(cell: Cell) -> CellView:
    """Return how a cell is shown."""
    match cell:
        case None:
            return CellView("nothing", "none")
        case Claim():
            return CellView("claim", "", claim=cell)
        case Bytes(value):
            return CellView("number", show_bytes(value), _exact(value, "bytes"))
        case Millis(value):
            return CellView("number", show_millis(value), _exact(value, "ms"))
        case bool():
            return CellView("text", "yes" if cell else "no")
        case int():
            return CellView("number", f"{cell:,}")
        case float():
            return CellView("number", show_float(cell))
        case str():
            return CellView("number" if _NUMBER.fullmatch(cell) else "text", cell)


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
    """Return a size with three significant digits."""
    size, unit = value, 0
    # What would be rounded to 1,024 of a unit is one of the next.
    while abs(size) >= 1023.5 and unit < len(SIZE_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.0f} {SIZE_UNITS[unit]}" if abs(size) >= 1000 else f"{show_float(size)} {SIZE_UNITS[unit]}"


def show_millis(value: float) -> str:
    """Return a duration in its largest unit with three significant digits; minutes and hours with what is left of them."""
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


def pieces(text: str) -> list[tuple[bool, str]]:
    """Return a text cut at backticks: (whether it is code, the piece)."""
    return [(bool(number % 2), piece) for number, piece in enumerate(_CODE.split(text)) if piece]


def _exact(value: float, unit: str) -> str:
    return f"{value:,.15g} {unit}"
