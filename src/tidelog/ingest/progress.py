"""Progress of work on a file: the command line shows a bar; the default is a no-op."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Called with the number of bytes of the file read since the last call."""

    def advance(self, done_bytes: int) -> None:
        """Add to the number of bytes that are done."""


class ProgressMaker(Protocol):
    """Begins to show a phase of the work, with its total size in bytes."""

    def __call__(self, what: str, total_bytes: int, /) -> AbstractContextManager[Progress]:
        """Return a context manager for the phase, to which progress is reported."""


class _Silent:
    def advance(self, done_bytes: int) -> None:
        """Show nothing."""


def silent(what: str, total_bytes: int, /) -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(_Silent())


class Position:
    """Turns positions in a file into numbers of bytes read since the last position."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._position = 0

    def reach(self, position: int) -> None:
        """Report that everything before `position` is done."""
        self._progress.advance(position - self._position)
        self._position = position
