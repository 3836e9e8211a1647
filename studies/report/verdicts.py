"""The claims of a chapter, and where they appear in the report. Claims are counted, not cells.

Cells of a table with the same `statement` are one claim that was tested several times: confirmed if all confirm it, refuted if
all refute it, otherwise confirmed in part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from studies.chapter import Cell, Chapter, Claim, Table, Verdict


class Claimed(NamedTuple):
    """A claim, and where it appears in the report."""

    anchor: str
    part: str
    """The table's title."""
    row: str
    column: str
    claim: Claim


def claims(chapter: Chapter) -> Iterator[Claimed]:
    """Yield a chapter's claims in the order of reading, each once."""
    for table in chapter.parts:
        if isinstance(table, Table):
            together: dict[str, list[Claimed]] = {}
            for number, claimed in enumerate(_cells(table)):
                together.setdefault(claimed.claim.statement or f"\0{number}", []).append(claimed)
            for cells in together.values():
                yield cells[0] if len(cells) == 1 else _one_of(cells)


def _cells(table: Table) -> Iterator[Claimed]:
    for number, row in enumerate(table.rows):
        name = _name(row) or f"row {number + 1}"
        for column, cell in enumerate(row):
            if isinstance(cell, Claim):
                yield Claimed(anchor(table, number, column), table.title, name, table.columns[column], cell)


def _one_of(cells: list[Claimed]) -> Claimed:
    """Return the joint verdict of several cells. It links to the first cell that does not confirm the claim, if there is one."""
    verdicts = {cell.claim.verdict for cell in cells}
    contrary = [cell for cell in cells if cell.claim.verdict is not Verdict.CONFIRMED]
    first = contrary[0] if contrary else cells[0]
    measured = f"holds in {len(cells) - len(contrary)} of {len(cells)} trials"
    if contrary:
        measured += f"; not so for {first.row}: {first.claim.measured}"
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.PARTLY
    statement = first.claim.statement
    return first._replace(row="all rows", claim=Claim(statement, measured, verdict, statement))


def _name(row: tuple[Cell, ...]) -> str:
    """Return a row's subject: its leading text cells, at most two."""
    words = takewhile(lambda cell: isinstance(cell, str | int) and not isinstance(cell, bool), row[:2])
    return ", ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in words if cell != "")


def count_verdicts(chapter: Chapter) -> Counter[Verdict]:
    """Return the number of a chapter's claims per verdict."""
    return Counter(claimed.claim.verdict for claimed in claims(chapter))


def anchor(table: Table, row: int, column: int) -> str:
    """Return the id of a claim's cell. Rows and columns count from 0 here, and from 1 in the id."""
    return f"{table.id}.r{row + 1}.c{column + 1}"
