"""One folder, one server and one browser for all tests of the page; each test has a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.interop.web.browser import Visitor, chromium, running_ui
from tests.interop.web.written import write_folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that the page shows."""
    path = tmp_path_factory.mktemp("page") / "data"
    write_folder(path)
    return path


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    """The page's address."""
    with running_ui(folder) as url:
        yield url


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium. It goes with the last test of the page: while it runs, this thread has a running event loop, in which no other
    test can start one.
    """
    with chromium() as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, address: str) -> Iterator[Visitor]:
    """A tab of the page; the test fails if the page did what it must not do."""
    one = Visitor(browser, address)
    yield one
    one.close()
