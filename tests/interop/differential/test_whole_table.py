"""Each line of the table of deliberate differences is borne out. By its name the last module here that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.differential.deliberate import RAN, SEEN, TABLE


def test_no_line_is_stale(request: pytest.FixtureRequest) -> None:
    wanted = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    if not wanted <= RAN or request.config.getoption("keyword"):
        pytest.skip("only when all modules ran in this process")
    if request.session.testsfailed:
        pytest.skip("a test that failed may not have come to its line")
    assert [line.label for index, line in enumerate(TABLE) if index not in SEEN] == []
