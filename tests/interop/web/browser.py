"""`tidelog ui` in a process of its own, and Debian's Chromium that shows its page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Response, expect, sync_playwright

from tests.patience import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)


@contextmanager
def running_ui(*sources: str | Path, cwd: Path | None = None) -> Iterator[str]:
    """Run `tidelog ui` for these sources, in a folder; yield the page's address, with its token."""
    command = [sys.executable, "-m", "tidelog", "ui", *map(str, sources)]
    environment = {**os.environ, "TIDELOG_TZ": "UTC"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=cwd
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            address = process.stdout.readline().strip()
            assert re.match(r"http://127\.0\.0\.1:\d+/\?token=", address), (
                f"{address}\n{process.stderr.read() if not address else ''}"
            )
            yield address
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium. Tests fail where it is missing: `.ci/run` installs it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "the page's tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        # Containers have neither the user namespaces of its sandbox nor a large /dev/shm.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person's tab. It remembers whatever a page must not do: errors, dialogs, violations of the CSP, requests to elsewhere."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.root = address.partition("?")[0]
        self.faults: list[str] = []
        self.context: BrowserContext = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._log)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on(
            "request",
            lambda request: None if request.url.startswith(self.root) else self.faults.append(f"request: {request.url}"),
        )
        self.page.on("response", self._answered)
        self.page.goto(address)
        expect(self.page.locator("h1")).to_be_visible()

    def _log(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")

    def open(self, view: str) -> None:
        """Go to a view, as by its link, and wait until nothing loads any more."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.root}#/{view}")
        self.settle()

    def settle(self) -> None:
        """Wait until the view is drawn."""
        expect(self.page.locator("main h1").first).to_be_visible()
        expect(self.page.locator("main [aria-busy=true]")).to_have_count(0)
        expect(self.page.get_by_text("Loading …")).to_have_count(0)
        expect(self.page.get_by_text("Counting …")).to_have_count(0)

    def close(self) -> None:
        """Close the tab; fails if the page did anything that it must not do."""
        self.context.close()
        assert self.faults == [], self.faults
