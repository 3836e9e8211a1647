"""The rows of docs/sources.md and the tests that they name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def rows() -> dict[str, list[str]]:
    """Return the tests of each row, by the row's id."""
    found = {}
    for line in (ROOT / "docs" / "sources.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.fullmatch(r"[A-Z0-9]+-\d+", cells[0]) and len(cells) > 3:
            found[cells[0]] = re.findall(r"`(tests/[^`]+)`", cells[3])
    return found


def tests_of(row: str) -> list[str]:
    """Return a row's tests that need no real Kafka."""
    return [test for test in rows()[row] if not test.startswith("tests/interop/")]
