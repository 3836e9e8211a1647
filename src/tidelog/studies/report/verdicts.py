"""The claims of a chapter, with their places in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from tidelog.studies.chapter import Cell, Chapter, Claim, Table, Verdict


class Claimed(NamedTuple):
    """A claim with its place in the report."""

    anchor: str
    part: str
    """The table's title."""
    row: str
    column: str
    claim: Claim


def claims(chapter: Chapter) -> Iterator[Claimed]:
    """Yield a chapter's claims in the order of reading."""
    for table in chapter.parts:
        if isinstance(table, Table):
            for number, row in enumerate(table.rows):
                name = _name(row) or f"row {number + 1}"
                for column, cell in enumerate(row):
                    if isinstance(cell, Claim):
                        yield Claimed(anchor(table, number, column), table.title, name, table.columns[column], cell)


def _name(row: tuple[Cell, ...]) -> str:
    """Return what a row is about: the words that it starts with, of two columns at most."""
    words = takewhile(lambda cell: isinstance(cell, str | int) and not isinstance(cell, bool), row[:2])
    return ", ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in words if cell != "")


def count_verdicts(chapter: Chapter) -> Counter[Verdict]:
    """Return how many of a chapter's claims came out in which way."""
    return Counter(claimed.claim.verdict for claimed in claims(chapter))


def anchor(table: Table, row: int, column: int) -> str:
    """Return the id of a claim's cell; rows and columns count from 0 here, and from 1 in the id."""
    return f"{table.id}.r{row + 1}.c{column + 1}"
