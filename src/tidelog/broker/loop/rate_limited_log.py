"""Rate-limited logging of lines that clients can cause. Suppressed lines are counted, and clients cannot inject lines."""

from __future__ import annotations

import logging
import re
from time import monotonic

LINES = 20
PERIOD_S = 60.0

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(text: str) -> str:
    """Return a text as a single line, so that clients cannot forge log lines with names that they choose."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class RateLimitedLog:
    """Writes at most `LINES` lines in `PERIOD_S` seconds to `logger`."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began_at = monotonic()
        self._lines = 0

    def warning(self, message: str, *arguments: object) -> None:
        self._write(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object) -> None:
        self._write(logging.ERROR, message, arguments)

    def _write(self, level: int, message: str, arguments: tuple[object, ...]) -> None:
        now = monotonic()
        if now - self._began_at >= PERIOD_S:
            if self._lines > LINES:
                self._logger.warning("%d more log lines were suppressed", self._lines - LINES)
            self._began_at, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.log(level, message, *arguments)
