"""`python -m bench.charts`: write the tables and charts of docs/benchmarks.md from bench/figures."""

from __future__ import annotations

import argparse
import re
import sys

from bench.charts.drawing import draw
from bench.charts.figures import ROOT, Table, tables, take

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "images" / "benchmarks"
PLACE = re.compile(r"<!-- figures: ([\w-]+) -->\n.*?<!-- end of figures -->", re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.charts", description="the tables and charts of docs/benchmarks.md")
    parser.add_argument("--measured", metavar="TEXT", help="take what benches measured here; TEXT says when and on what machine")
    options = parser.parse_args(arguments)
    for name in take(options.measured) if options.measured else ():
        print(f"taken: {name}")
    by_name = {table.name: table for table in tables()}
    for table in by_name.values():
        draw(table, PICTURES / f"{table.name}.svg")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), by_name), encoding="utf-8")
    return 0


def filled(page: str, by_name: dict[str, Table]) -> str:
    """Return the page with each table in its place. KeyError where a place names no table."""

    def section(place: re.Match[str]) -> str:
        table = by_name[place[1]]
        picture = f"![{table.title}: how many times ahead of {table.peer} Tidelog is](images/benchmarks/{table.name}.svg)"
        words = f"`{table.command}`. {table.measured}."
        return f"<!-- figures: {table.name} -->\n{words}\n\n{picture}\n\n{table.markdown()}\n<!-- end of figures -->"

    return PLACE.sub(section, page)


if __name__ == "__main__":
    sys.exit(main())
