"""The examples of docs/scan.md: they run, and say what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import LogBuilder
from tidelog.clock import ManualClock
from tidelog.times import parse_time

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scan.md"
EXAMPLES = {
    heading.strip(): code
    for heading, code in re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Two partitions, a record a minute over three days, every tenth of them half a day late."""
    begin = parse_time("2013-07-09", ManualClock())
    for partition in range(2):
        builder = LogBuilder(tmp_path, partition, segment_bytes=20_000)
        for minute in range(partition, 3 * 1440, 20):
            late = [720 if i == 3 else 0 for i in range(10)]
            builder.append([(begin + (minute + 2 * i - late[i]) * 60_000, b"key %d" % (i % 3), b"value") for i in range(10)])
        builder.close()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        ("pandas", "60"),
        ("Polars", "3"),
        ("DuckDB", "[(0, 720), (1, 720)]"),
        ("What the scan met", "0 0"),
        ("In parallel", "1440"),
        ("Time maps", "1440 True"),
    ],
)
def test_example(example: str, printed: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"tidelog": tidelog, "DATA": data, "MAPS": str(tmp_path / "maps")}
    exec(compile(EXAMPLES[example], f"{PAGE.name}: {example}", "exec"), names)
    assert capsys.readouterr().out.strip() == printed


def test_the_page_names_every_argument_and_column() -> None:
    import inspect

    from tidelog.sources.schema import ALL_COLUMNS

    text = PAGE.read_text()
    for name in (*inspect.signature(tidelog.scan).parameters, *ALL_COLUMNS):
        assert f"`{name}`" in text, name
