"""Renders the page from chapters: it prepares the templates' data, and checks that ids are unique.

| anchor | leads to |
|---|---|
| `study-NAME` | a chapter |
| a table's or plot's `id` | that part |
| `ID.rR.cC` | a claim: cell C of row R |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from studies.chapter import Cell, Chapter, Claim, Plot, Table, Verdict
from studies.report import plots
from studies.report.axes import Kind, kind_of
from studies.report.cells import SIGNS, pieces, view
from studies.report.verdicts import anchor, claims, count_verdicts
from tidelog.errors import InvalidArgumentError

LONG_TEXT = 60

MANY_ROWS = 25
"""A table with more rows than this scrolls separately."""

MOST_NUMBERS = 60
"""A plot with up to this many points also shows its numbers as a table."""


@dataclass(frozen=True)
class Facts:
    """Facts about the run for the report, without the machine's name."""

    made_ms: int
    """The time of the run, in epoch ms."""
    tidelog: str
    python: str
    spark: str
    cores: int
    """The number of tasks that ran in parallel."""
    scale: float
    seconds: float
    """The duration of the whole run."""


def render(chapters: Sequence[Chapter], facts: Facts) -> str:
    """Return the report as a complete HTML document.

    Raise InvalidArgumentError if two chapters, tables or plots have the same id, or an id cannot be used in a link.
    """
    _check_ids(chapters)
    environment = Environment(
        loader=PackageLoader("studies.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=_prose, cell=view, verdict_class=lambda verdict: verdict.name.lower().replace("_", "-"))
    environment.globals.update(
        is_table=lambda part: isinstance(part, Table),
        draw=plots.draw,
        numbers=_numbers,
        is_numeric=_is_numeric,
        is_prose=_is_prose,
        row_spans=_row_spans,
        many_rows=MANY_ROWS,
        signs=SIGNS,
        anchor=anchor,
    )
    template = environment.get_template("page.html")
    return (
        template.render(
            chapters=chapters,
            facts=facts,
            made=datetime.fromtimestamp(facts.made_ms / 1000, UTC),
            style=Markup(environment.get_template("page.css").render()),
            verdicts=list(Verdict),
            doubtful=(Verdict.REFUTED, Verdict.PARTLY),
            counts={chapter.name: count_verdicts(chapter) for chapter in chapters},
            claims={chapter.name: list(claims(chapter)) for chapter in chapters},
        )
        + "\n"
    )


def _check_ids(chapters: Sequence[Chapter]) -> None:
    ids = [f"study-{chapter.name}" for chapter in chapters] + [part.id for chapter in chapters for part in chapter.parts]
    for name, count in Counter(ids).items():
        if count > 1:
            raise InvalidArgumentError("two parts of the report have the same id", found=name)
        if not name.replace("-", "").isalnum() or not name.isascii():
            raise InvalidArgumentError("an id is made of letters, digits and hyphens", found=name)


def _prose(text: str) -> Markup:
    """Return a text as HTML: escaped, with text between backticks as code."""
    return Markup("").join(Markup("<code>{}</code>" if code else "{}").format(piece) for code, piece in pieces(text))


def _is_numeric(table: Table, column: int) -> bool:
    """Return whether most cells of a column are numbers, so that the column is right-aligned."""
    kinds = Counter(view(row[column]).kind for row in table.rows)
    return kinds["number"] > 0 and kinds["number"] >= kinds["text"] and not kinds["claim"]


def _is_prose(table: Table) -> bool:
    """Return whether a table is mainly text to read; on a phone each of its rows becomes a paragraph."""
    return any(
        isinstance(cell, Claim) or (isinstance(cell, str) and len(cell) > LONG_TEXT) for row in table.rows for cell in row[1:]
    )


def _row_spans(table: Table) -> list[int]:
    """Return for each row how many rows its first cell spans, 0 if an earlier row's cell spans it.

    Adjacent rows with equal first cells share one cell, except in a table that is mainly text to read.
    """
    spans: list[int] = []
    first = 0
    for number, row in enumerate(table.rows):
        if number and isinstance(row[0], str) and row[0] == table.rows[first][0] and not _is_prose(table):
            spans[first] += 1
            spans.append(0)
        else:
            first = number
            spans.append(1)
    return spans


def _numbers(plot: Plot) -> Table | None:
    """Return a plot's content as a table, None if that is too long or the plot already shows all numbers."""
    points = sum(len(series.xs) for series in plot.series)
    if not 0 < points <= MOST_NUMBERS:
        return None
    xs = list(dict.fromkeys(x for series in plot.series for x in series.xs))
    by_x = [dict(zip(series.xs, series.ys, strict=True)) for series in plot.series]
    columns = (plot.x_label, *(series.name or plot.y_label for series in plot.series))
    rows = tuple((_x_cell(plot, x), *(_y_cell(known.get(x)) for known in by_x)) for x in xs)
    return Table(f"{plot.id}-numbers", f"{plot.title}: {plot.y_label}", columns, rows)


def _x_cell(plot: Plot, x: float | str) -> Cell:
    if isinstance(x, str) or kind_of(plot.x_label, plot.x_is_time) is not Kind.TIME:
        return x if isinstance(x, str) or x != math.floor(x) else int(x)
    return datetime.fromtimestamp(x / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _y_cell(y: float | None) -> Cell:
    if y is None or not math.isfinite(y):
        return None
    return int(y) if y == math.floor(y) else float(y)
