"""What a study says: text, tables and plots, as plain data. How they look is the report's business (`studies.report`).

A table of the documents appears with its own rows and columns; a cell that is claimed there and measured here is a `Claim`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Verdict(enum.Enum):
    """What a measurement says of a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    PARTLY = "in part"
    NOT_MEASURABLE = "not measurable"


class Claim(NamedTuple):
    """A cell: what the document claims, what was measured, and what that says of the claim."""

    claimed: str
    measured: str
    verdict: Verdict
    statement: str = ""
    """What several cells of a table put to the test together, each on a log of its own: it counts as one claim."""


class Bytes(NamedTuple):
    """A cell: a size, shown in a readable unit."""

    value: float


class Millis(NamedTuple):
    """A cell: a duration in ms, shown in a readable unit."""

    value: float


Cell = str | int | float | bool | None | Claim | Bytes | Millis
"""None is shown as "none"; a float with three significant digits."""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    id: str
    """Unique in the report, for links: "which-index-sizes"."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str = ""
    """Which table or sentence of which document this answers."""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{self.id}: {row}"


class Series(NamedTuple):
    """One line, or one group of bars."""

    name: str
    xs: tuple[float | str, ...]
    """Words for bars, numbers for lines and points."""
    ys: tuple[float, ...]


class Mark(enum.Enum):
    """How a plot draws its series."""

    BARS = "bars"
    LINE = "line"
    STEPS = "steps"
    POINTS = "points"


@dataclass(frozen=True)
class Plot:
    """A plot of the report."""

    id: str
    title: str
    series: tuple[Series, ...]
    mark: Mark
    x_label: str
    y_label: str
    """With its unit."""
    log_y: bool = False
    log_x: bool = False
    x_is_time: bool = False
    """Whether `xs` are epoch ms (UTC)."""
    caption: str = ""


@dataclass(frozen=True)
class Chapter:
    """One study's part of the report."""

    name: str
    title: str
    question: str
    """What the documents argue about, in a paragraph."""
    answer: str
    """What came out, in a paragraph."""
    parts: tuple[Table | Plot, ...]
    """In the order of reading."""
    assumptions: tuple[str, ...] = ()
    """Every parameter of the generated logs, seeds included, and what the models leave out."""
    findings: tuple[str, ...] = field(default_factory=tuple)
    """What contradicts the documents, or surprised; a sentence each."""
