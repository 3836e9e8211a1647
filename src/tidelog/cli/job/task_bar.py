"""A progress bar on a terminal's stderr that counts tasks. It starts again with each stage of a job."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from tidelog.cli.printing.progress_bar import SHOWN_AFTER_SECONDS
from tidelog.cli.printing.terminal import stderr_is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class TaskBar:
    """The progress bar of a job's tasks: a context manager. The job reports its progress to `show`, on one thread at a time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._enabled = stderr_is_terminal()
        self._start = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> TaskBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` tasks are complete."""
        if not self._enabled:
            return
        if self._bar is None:
            if time.monotonic() - self._start < SHOWN_AFTER_SECONDS:
                return
            self._bar = _show(self._what, total)
        progress, task = self._bar
        progress.update(task, completed=done, total=total)


def _show(what: str, total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
    progress.start()
    return progress, progress.add_task(what, total=total)
