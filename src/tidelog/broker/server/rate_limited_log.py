"""Log lines that strangers can cause: some of them, and how many were left out."""

from __future__ import annotations

import logging
from time import monotonic

LINES = 20
PERIOD_S = 60.0


class RateLimitedLog:
    """Writes lines to `logger`, `LINES` in `PERIOD_S` at most."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began_at = monotonic()
        self._lines = 0

    def warning(self, message: str, *arguments: object) -> None:
        """Write a warning, if there were not too many lines."""
        self._write(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object) -> None:
        """Write an error, if there were not too many lines."""
        self._write(logging.ERROR, message, arguments)

    def _write(self, level: int, message: str, arguments: tuple[object, ...]) -> None:
        now = monotonic()
        if now - self._began_at >= PERIOD_S:
            if self._lines > LINES:
                self._logger.warning("%d more lines were suppressed", self._lines - LINES)
            self._began_at, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.log(level, message, *arguments)
