"""A study's results as plain data: text, tables and plots. `studies.report` decides how they look.

A table of the documents keeps its rows and columns. A cell that the documents claim and a study measures is a `Claim`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Verdict(enum.Enum):
    """Whether a measurement confirms a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    PARTLY = "in part"
    NOT_MEASURABLE = "not measurable"


class Claim(NamedTuple):
    """A cell with the document's claim, the measured value, and the verdict."""

    claimed: str
    measured: str
    verdict: Verdict
    statement: str = ""
    """A statement that several cells test, each on a separate log. Together they count as one claim."""


class Bytes(NamedTuple):
    """A cell with a size in bytes, shown in a readable unit."""

    value: float


class Millis(NamedTuple):
    """A cell with a duration in ms, shown in a readable unit."""

    value: float


Cell = str | int | float | bool | None | Claim | Bytes | Millis
"""A table cell. None is shown as "none", a float with three significant digits."""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    id: str
    """The table's id, unique in the report, for links: "which-index-sizes"."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str = ""
    """The table or sentence of a document that this table tests."""
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
    """The axis title, with its unit."""
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
    """The argument of the documents, in a paragraph."""
    answer: str
    """The result, in a paragraph."""
    parts: tuple[Table | Plot, ...]
    """Tables and plots, in the order of reading."""
    assumptions: tuple[str, ...] = ()
    """Every parameter of the generated logs, including seeds, and the simplifications of the models."""
    findings: tuple[str, ...] = field(default_factory=tuple)
    """Results that contradict the documents or are unexpected, in one sentence each."""
