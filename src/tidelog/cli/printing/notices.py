"""Notices on stderr, separate from the answer: one line each, `note: ...`.

Lower layers report what they tolerate (a damaged index, a truncated last batch) to `logging.getLogger("tidelog.<area>")`; here
those log records become lines. The same line is printed once per run, however often its cause occurs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from tidelog.cli.printing import terminal
from tidelog.cli.printing.layout import one_line

INCOMPLETE = 3
"""The exit code for an incomplete answer: offsets are missing from the folder, or damage was skipped."""


WITHOUT_COMPILER = "no C compiler was found during installation; reinstall Tidelog with a C compiler to make it many times faster"
"""The reason why a kernel is not compiled."""


class _NoteHandler(logging.Handler):
    """Turns log records of level WARNING and above into notes, each printed once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.getMessage())

    def note(self, message: str) -> None:
        # The reader's messages use the name that the option has in Python and Spark.
        message = message.replace("the option tier", "--tier")
        if message not in self.printed:
            self.printed.add(message)
            print_line(message, terminal.YELLOW, "note: ", "warning")


_handlers: list[_NoteHandler] = []
_json: list[Callable[[str, str], str]] = []


def write_json(*forms: Callable[[str, str], str]) -> None:
    """Write each line as a JSON object from now on, which the first of `forms` makes from a level and a message. Without an
    argument, write text again.
    """
    _json[:] = forms


def install() -> None:
    """Print the notices of `tidelog.*` to stderr from now on; each call is undone by one call of `uninstall`."""
    handler = _NoteHandler()
    _handlers.append(handler)
    logging.getLogger("tidelog").addHandler(handler)


def uninstall() -> None:
    """Undo the last `install`."""
    logging.getLogger("tidelog").removeHandler(_handlers.pop())


def note(message: str) -> None:
    """Print one line about the answer, `note: ...`, once per run."""
    (_handlers[-1] if _handlers else _NoteHandler()).note(message)


def note_interpreted() -> None:
    """Print a note that the run is slow if records were read or written by a kernel that is not compiled."""
    kernel = sys.modules.get("tidelog.records.kernel")
    if kernel is not None and not kernel.COMPILED:
        note(f"the kernel that reads and writes records runs interpreted: {WITHOUT_COMPILER}")


def complain(message: str) -> None:
    """Print an error, `tidelog: ...`."""
    print_line(message, terminal.RED, "tidelog: ", "error")


def print_line(line: str, style: str = "", prefix: str = "", level: str = "info") -> None:
    """Write a line to stderr: as text with its prefix, whose first word is in `style`, or as a JSON object with its level. A
    closed stderr is not an error, because nobody reads it.
    """
    shown = _json[0](level, line) if _json else one_line(prefix + line)
    if style and not _json and terminal.shows_colours(sys.stderr):
        word, blank, rest = shown.partition(" ")
        shown = terminal.styled(word, style) + blank + rest
    try:
        print(shown, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return
