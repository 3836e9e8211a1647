"""Log lines that strangers can cause: some of them, and how many were left out."""

from __future__ import annotations

import logging
from time import monotonic

LINES = 20
PERIOD_S = 60.0


class RateLimitedLog:
    """Writes warnings to `logger`, `LINES` in `PERIOD_S` at most."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began_at = monotonic()
        self._lines = 0

    def warning(self, message: str, *arguments: object) -> None:
        """Write a warning, if there were not too many."""
        now = monotonic()
        if now - self._began_at >= PERIOD_S:
            if self._lines > LINES:
                self._logger.warning("%d more lines were left out", self._lines - LINES)
            self._began_at, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.warning(message, *arguments)
