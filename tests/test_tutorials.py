"""The tutorials show what their commands print. `python -m tests.tutorial_pages PAGE` writes the output into a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tutorial_pages import TUTORIALS, run_page


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_shows_what_its_commands_print(page: Path) -> None:
    assert run_page(page) == page.read_text(encoding="utf-8")
