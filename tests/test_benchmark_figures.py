"""docs/benchmarks.md shows the figures of bench/figures: the tables as `python -m bench.charts` writes them, one chart each."""

from __future__ import annotations

import pytest
from bench.charts.__main__ import PAGE, PICTURES, PLACE, filled
from bench.charts.figures import Figure, Table, tables


def test_the_page_has_each_table_as_it_is_written() -> None:
    page, by_name = PAGE.read_text(encoding="utf-8"), {table.name: table for table in tables()}
    assert sorted(by_name) == sorted(PLACE.findall(page)) == sorted(path.stem for path in PICTURES.glob("*.svg"))
    assert filled(page, by_name) == page


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.name)
def test_a_chart_names_each_row(table: Table) -> None:
    chart = (PICTURES / f"{table.name}.svg").read_text(encoding="utf-8")
    assert [row.what for row in table.rows if row.what.replace("&", "&amp;") not in chart] == []


def test_rows_where_the_peer_is_ahead_come_first() -> None:
    rows = [Figure("rate", 10, 30, "MB/s"), Figure("wait", 10, 20, "ms", more_is_better=False), Figure("time", 10, 5, "s", False)]
    table = Table("t", "title", "Kafka", "command", "today", rows=rows)
    assert [(row.what, row.ahead) for row in table.in_order()] == [("wait", 0.5), ("time", 2), ("rate", 3)]
    assert table.markdown().splitlines()[2:] == [
        "| wait | 10 ms | 20 ms | 0.50× |",
        "| time | 10 s | 5 s | **2.00×** |",
        "| rate | 10 MB/s | 30 MB/s | **3.00×** |",
    ]
