"""Reports progress of work on a file. The command line shows a progress bar; the default shows nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Receives the number of bytes of the file that were read since the last call."""

    def advance(self, done_bytes: int) -> None:
        """Add `done_bytes` to the number of bytes that are done."""


class ProgressMaker(Protocol):
    """Starts showing the progress of a phase of the work, given the phase's total size in bytes."""

    def __call__(self, what: str, total_bytes: int, /) -> AbstractContextManager[Progress]:
        """Begin the phase. Return a context manager that yields the `Progress` to report to."""


class _Silent:
    def advance(self, done_bytes: int) -> None:
        """Show nothing."""


def silent(what: str, total_bytes: int, /) -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(_Silent())


class Position:
    """Reports progress from positions in a file: each position adds the bytes since the one before."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._position = 0

    def reach(self, position: int) -> None:
        """Report that everything before `position` is done."""
        self._progress.advance(position - self._position)
        self._position = position
