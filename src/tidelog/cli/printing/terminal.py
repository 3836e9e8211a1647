"""What the terminal can show: its width, and colours.

Colours are for terminals only. NO_COLOR and `CLICOLOR=0` turn them off; FORCE_COLOR and CLICOLOR_FORCE turn them on, even in a
pipe. NO_COLOR wins. See no-color.org, force-color.org and bixense.com/clicolors.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

BOLD, DIM, RED, YELLOW = "1", "2", "31", "33"


def stdout_is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return _is_terminal(sys.stdout)


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return _is_terminal(sys.stderr)


def stdout_width() -> int | None:
    """Return the terminal's width in columns, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if stdout_is_terminal() else None


def shows_colours(stream: TextIO | None) -> bool:
    """Whether text for a stream is to be coloured."""
    if os.environ.get("NO_COLOR"):
        return False
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if os.environ.get(name, "0") not in ("", "0", "false"):
            return True
    return os.environ.get("CLICOLOR") != "0" and os.environ.get("TERM") != "dumb" and _is_terminal(stream)


def styled(text: str, style: str) -> str:
    """Return the text in a style, one of this module's constants."""
    return f"\x1b[{style}m{text}\x1b[0m"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
