"""Every view of the page of a backup: nothing fails, and the page says which point it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.conftest import run_ok
from tests.interop.web.browser import Visitor, running_ui
from tests.interop.web.written import HOUR_MS, T

RANGE = f"start={T + 9 * HOUR_MS}&end={T + 10 * HOUR_MS}"
VIEWS = (
    *("topics", "groups", "group?group=billing"),
    f"topic?topic=orders&{RANGE}&record=1:193",
    f"topic?topic=orders&part=lookup&at={T + 14 * HOUR_MS}",
    *(f"topic?topic=orders&part={part}&{RANGE}" for part in ("tail", "cut", "retention", "segments", "export")),
)


@pytest.mark.parametrize("width", [1280, 360])
def test_every_view(browser: Browser, folder: Path, tmp_path: Path, width: int) -> None:
    run_ok("backup", folder, tmp_path / "backup")
    with running_ui(tmp_path / "backup") as address:
        visitor = Visitor(browser, address, viewport={"width": width, "height": 800})
        for view in VIEWS:
            visitor.open(view)
            if view.startswith("topic"):
                expect(visitor.page.get_by_text("point 1 of a backup, taken")).to_be_visible()
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
        visitor.close()
