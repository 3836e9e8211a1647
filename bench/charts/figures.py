"""A figure: what one peer and Tidelog did in one run. A table of figures: one file of bench/figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "bench" / "figures"
"""What docs/benchmarks.md shows."""
MEASURED = ROOT / "bench" / "out" / "figures"
"""What benches measured here since it was last taken over."""


@dataclass(frozen=True)
class Figure:
    """One row: medians of `peer` and of Tidelog in `unit`.

    `processor` is what the two brokers' processes spent, in the table's `processor_unit`. `target` is the required ratio of
    Tidelog to the peer: a minimum if more is better, otherwise a maximum.
    """

    what: str
    peer: float
    tidelog: float
    unit: str
    more_is_better: bool = True
    target: float | None = None
    processor: tuple[float, float] | None = None

    @property
    def ahead(self) -> float:
        """How many times better Tidelog is: 2.0 for twice the rate or half the time, below 1 where the peer is ahead."""
        ours, theirs = (self.tidelog, self.peer) if self.more_is_better else (self.peer, self.tidelog)
        return ours / theirs if theirs else float("inf")


@dataclass(frozen=True)
class Table:
    """`name` is the file's name in bench/figures; `measured` says when, and on what machine."""

    name: str
    title: str
    peer: str
    command: str
    measured: str
    processor_unit: str = ""
    rows: list[Figure] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table in Markdown. Rows in which the peer is ahead come first, the furthest behind at the top."""
        has_processor = any(row.processor for row in self.rows)
        heads = ["what", self.peer, "Tidelog", "Tidelog is ahead"]
        if has_processor:
            heads.append(f"processor time, {self.processor_unit}")
        lines = [heads, ["---"] * len(heads)]
        for row in self.in_order():
            cells = [row.what, f"{number(row.peer)} {row.unit}", f"{number(row.tidelog)} {row.unit}", times(row.ahead)]
            if has_processor:
                cells.append(" → ".join(map(number, row.processor)) if row.processor else "")
            lines.append(cells)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def in_order(self) -> list[Figure]:
        """Return the rows by `ahead`, the smallest first."""
        return sorted(self.rows, key=lambda row: row.ahead)


def tables() -> list[Table]:
    """Return the tables of bench/figures, by name."""
    return [load(path) for path in sorted(FIGURES.glob("*.json"))]


def load(path: Path) -> Table:
    """Return the table in a file. KeyError or TypeError where the file lacks a field or has another one."""
    read = json.loads(path.read_text(encoding="utf-8"))
    rows = [Figure(**{**row, "processor": tuple(row["processor"]) if row.get("processor") else None}) for row in read.pop("rows")]
    return Table(name=path.stem, rows=rows, **read)


def save(table: Table) -> None:
    """Write a table to bench/figures, one row a line."""
    head = {key: value for key, value in asdict(table).items() if key not in ("name", "rows")}
    lines = [
        json.dumps({key: value for key, value in asdict(row).items() if value is not None}, ensure_ascii=False)
        for row in table.rows
    ]
    text = json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    (FIGURES / f"{table.name}.json").write_text(text, encoding="utf-8")


def note(table: str, figure: Figure) -> None:
    """Note a row of `table` that was just measured. A row of the same text is replaced."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    path = MEASURED / f"{table}.json"
    rows = {row["what"]: row for row in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    rows[figure.what] = asdict(figure)
    path.write_text(json.dumps(list(rows.values())), encoding="utf-8")


def take(measured: str) -> Iterable[str]:
    """Take what was noted into bench/figures, each table's rows as a whole. Yield the names of the tables that changed."""
    for table in tables():
        path = MEASURED / f"{table.name}.json"
        if path.exists():
            rows = [
                Figure(**{**row, "processor": row["processor"] and tuple(row["processor"])})
                for row in json.loads(path.read_text())
            ]
            save(Table(**{**vars(table), "measured": measured, "rows": rows}))
            path.unlink()
            yield table.name


def number(value: float) -> str:
    """Return a number with three digits, or all of a large one: 0.25, 3.97, 17.7, 2,406."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ahead: float) -> str:
    """Return `ahead` as text, in bold from 1 on."""
    text = f"{ahead:.2f}×" if ahead < 10 else f"{ahead:.0f}×"
    return f"**{text}**" if ahead >= 1 else text
