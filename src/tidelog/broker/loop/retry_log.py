"""Log lines of a loop that retries: the first failure, each new reason, a repeated reason once a minute, and the recovery.

| what happens | what is logged |
|---|---|
| the first failure, or a failure for a different reason | the reason |
| the same reason again | the reason, once per `PERIOD_S`, with the number of failures that were not logged |
| it works again | the recovery, if a failure was logged |

In any case at most `LINES` lines are written per `PERIOD_S`, because reasons may contain a number that differs each time, and a
peer may alternately fail and recover. Use on one thread only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

LINES = 5
PERIOD_S = 60.0


class RetryLog:
    """Writes the lines of one retrying loop, or of several similar loops, to `logger`: at most `lines` in `PERIOD_S`."""

    def __init__(self, logger: logging.Logger, lines: int = LINES, now_s: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._lines = lines
        self._now_s = now_s
        self._written: deque[float] = deque()
        """The times of the lines written in the last `PERIOD_S`."""
        self._reasons: dict[str, float] = {}
        """The reasons logged since the last success, with their times."""
        self._left_out = 0

    def failed(self, message: str, *arguments: object, level: int = logging.WARNING) -> None:
        """Record a failure, and log it if it is due. The formatted message is the reason."""
        reason = message % arguments if arguments else message
        now_s = self._now_s()
        is_new = now_s - self._reasons.get(reason, -PERIOD_S) >= PERIOD_S
        if not is_new or not self._may_write(now_s):
            self._left_out += 1
            return
        more = f" (not logged meanwhile: {self._left_out})" if self._left_out else ""
        self._left_out = 0
        if len(self._reasons) >= self._lines:
            self._reasons = {known: at for known, at in self._reasons.items() if now_s - at < PERIOD_S}
        self._reasons[reason] = now_s
        self._logger.log(level, "%s%s", reason, more)

    def error(self, message: str, *arguments: object) -> None:
        """Do the same as `failed`, at level ERROR."""
        self.failed(message, *arguments, level=logging.ERROR)

    def works(self, message: str, *arguments: object) -> None:
        """Record a success, and log the recovery if a failure was logged. The next failure is logged at once."""
        if self._reasons and self._may_write(self._now_s()):
            self._reasons.clear()
            self._left_out = 0
            self._logger.info(message, *arguments)

    def _may_write(self, now_s: float) -> bool:
        """Return whether another line may be written, and count it."""
        while self._written and now_s - self._written[0] >= PERIOD_S:
            self._written.popleft()
        if len(self._written) >= self._lines:
            return False
        self._written.append(now_s)
        return True
