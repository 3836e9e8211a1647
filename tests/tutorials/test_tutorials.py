"""Every tutorial is followed to its end, and shows what is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.tutorials.page import ROOT, Reader

PAGES = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.name != "README.md")


def _cases() -> list[Any]:
    """Return the pages; those that start Spark take a minute."""
    marks = {"data-engineer": [pytest.mark.interop, pytest.mark.thorough("tests/spark has each option, tests/interop each job")]}
    return [pytest.param(page, id=page.stem, marks=marks.get(page.stem, ())) for page in PAGES]


@pytest.mark.parametrize("page", _cases())
def test_a_tutorial_is_true(page: Path, tmp_path: Path) -> None:
    assert Reader(page, tmp_path).follow() >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_has_twelve_tasks(page: Path) -> None:
    tasks = re.findall(r"^## (\d+)\. ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert tasks == [str(number) for number in range(1, 13)]
