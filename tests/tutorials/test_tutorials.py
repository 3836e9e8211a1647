"""Every tutorial is followed to its end, and shows what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tutorials.page import ROOT, Reader

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def _cases() -> list[Any]:
    """Return the pages; those that start Spark take a minute."""
    marks = {"data-engineer": [pytest.mark.interop, pytest.mark.thorough("tests/spark has each option, tests/interop each job")]}
    return [pytest.param(page, id=page.stem, marks=marks.get(page.stem, ())) for page in PAGES if page.name != "README.md"]


@pytest.mark.parametrize("page", _cases())
def test_a_tutorial_is_true(page: Path, tmp_path: Path) -> None:
    Reader(page, tmp_path).follow()
