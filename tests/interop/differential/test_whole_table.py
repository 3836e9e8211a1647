"""Each line of the table of deliberate differences is borne out. By its name the last module here that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.differential.deliberate import SEEN, TABLE


def test_no_line_is_stale(request: pytest.FixtureRequest) -> None:
    config = request.config
    wanted = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    ran = {item.path.name for item in request.session.items if item.path.parent == Path(__file__).parent}
    if not wanted <= ran or config.getoption("keyword") or hasattr(config, "workerinput"):
        pytest.skip("only when all modules run in one process")
    if request.session.testsfailed:
        pytest.skip("a test that failed may not have come to its line")
    assert [line.label for index, line in enumerate(TABLE) if index not in SEEN] == []
