"""Formats a table cell as text.

| cell | shown as |
|---|---|
| None | none |
| bool | yes, no |
| int | 1,234,567 |
| float | three significant digits: 0.00123, 12.3, 1,230 |
| Bytes | 999 B, 1.5 KiB, 3.38 GiB; the tooltip has the exact number |
| Millis | 5 ms, 1.5 s, 2 min 30 s, 6 h, 2.5 d; the tooltip has the exact number |
| str | unchanged, right-aligned if it is a share or a factor; text between backticks as code |
| Claim | the claim, the measured value and the verdict |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from studies.chapter import Bytes, Cell, Claim, Millis, Verdict
from studies.quantities import show_bytes, show_float, show_millis

SIGNS = {Verdict.CONFIRMED: "✓", Verdict.REFUTED: "✗", Verdict.PARTLY: "◐", Verdict.NOT_MEASURABLE: "–"}
"""The sign before a verdict's word."""

_NUMBER = re.compile(r"[-−+]?\d[\d,.]*( ?%| ?[x×]| of \d[\d,]*)?")
"""Texts that are aligned like numbers: a share, a factor, "some of all"."""

_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class CellView:
    """A cell in the form that the template needs."""

    kind: str
    """A CSS class: "number", "text", "nothing" or "claim"."""
    text: str
    exact: str = ""
    """The exact value if `text` is rounded."""
    claim: Claim | None = None


def view(cell: Cell) -> CellView:
    """Return the displayed form of a cell."""
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


def pieces(text: str) -> list[tuple[bool, str]]:
    """Split a text at backticks; return pairs of (is code, piece)."""
    return [(bool(number % 2), piece) for number, piece in enumerate(_CODE.split(text)) if piece]


def _exact(value: float, unit: str) -> str:
    return f"{value:,.15g} {unit}"
