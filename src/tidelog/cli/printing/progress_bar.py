"""A progress bar on stderr for long work.

The bar appears only if stderr is a terminal, stdout is not, and the work has taken `SHOWN_AFTER_SECONDS`. Most runs end earlier,
so `rich` is imported only when the bar appears.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tidelog.cli.printing.terminal import stderr_is_terminal, stdout_is_terminal
from tidelog.formats.paths.file_path import FilePath

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOWN_AFTER_SECONDS = 0.7


class ProgressBar:
    """Shows how many of `total_bytes` are done. Use it as a context manager, and report progress with `advance`."""

    def __init__(self, what: str, total_bytes: int, *, answer_on_stdout: bool = True) -> None:
        self.done_bytes = 0
        self.records = 0
        self._what = what
        self._total_bytes = total_bytes
        self._enabled = stderr_is_terminal() and not (answer_on_stdout and stdout_is_terminal())
        self._start = time.monotonic()
        self._guard = threading.Lock()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def advance(self, done_bytes: int, records: int = 0) -> None:
        """Count `done_bytes` more bytes, and records if they are known, as done. May be called on any thread."""
        with self._guard:
            self.done_bytes += done_bytes
            self.records += records
            if not self._enabled:
                return
            if self._bar is None:
                if time.monotonic() - self._start < SHOWN_AFTER_SECONDS:
                    return
                self._bar = _show(self._what, self._total_bytes)
            progress, task = self._bar
            counted = f"{self.records:,} records" if self.records else ""
            progress.update(task, completed=min(self.done_bytes, self._total_bytes), records=counted)

    def hide(self) -> None:
        """Remove the bar before lines are printed; the next `advance` shows it again."""
        with self._guard:
            if self._bar is not None:
                self._bar[0].stop()
                self._bar = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.hide()


def size_of(files: Iterable[FilePath]) -> int:
    """Return the total size of files. Files that no longer exist are left out."""
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def _show(what: str, total_bytes: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[records]}"),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
    progress.start()
    return progress, progress.add_task(what, total=total_bytes, records="")
