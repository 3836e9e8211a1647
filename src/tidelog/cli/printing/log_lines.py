"""A broker's log lines on stderr, one line per record, times in UTC.

| format | |
|---|---|
| `text` | `2026-11-22 03:15:33.123 info    broker: ...` |
| `json` | an object with `time`, `level`, `area`, `message`, and `traceback` after an unexpected error: all text, in ASCII |

Any client can cause log lines, with garbage or refused records. So that no client can fill the disk, at most `LINES` lines of
each kind are written in `PERIOD_S`, then the number of suppressed lines. A kind is a place in the source code.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import one_line

logger = logging.getLogger("tidelog.serve")

LINES = 20
PERIOD_S = 60.0


class _Format(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        area = record.name.removeprefix("tidelog.")
        return f"{self.formatTime(record)} {record.levelname.lower():7} {area}: {one_line(record.message)}"


class _JsonFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "area": record.name.removeprefix("tidelog."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)  # In ASCII: no character of a client's ends a line, or is a lone surrogate.


def json_log_line(level: str, message: str) -> str:
    """Return the JSON object of a message that is not a log record, such as an error in the command line."""
    return _JsonFormat().format(logging.LogRecord("tidelog.serve", getattr(logging, level.upper()), "", 0, message, None, None))


FORMATS: dict[str, type[logging.Formatter]] = {"text": _Format, "json": _JsonFormat}


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg] # it has no argument at run time
    """Writes the lines of each kind, up to a limit."""

    def __init__(self, now: Callable[[], float] = time.monotonic, form: str = "text") -> None:
        super().__init__(sys.stderr)
        self.setFormatter(FORMATS[form]())
        self._now = now
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record, unless too many of its kind were written in this period."""
        kind = self._kinds.setdefault((record.name, record.levelno, str(record.msg)), _Kind())
        now = self._now()
        if now - kind.began_at >= PERIOD_S:
            left_out = kind.lines - LINES
            kind.began_at, kind.lines = now, 0
            if left_out > 0:
                super().emit(_left_out(record, left_out))
        kind.lines += 1
        if kind.lines <= LINES:
            super().emit(record)


class _Kind:
    """The number of lines of one kind in the current period."""

    __slots__ = ("began_at", "lines")

    def __init__(self) -> None:
        self.began_at = -PERIOD_S
        self.lines = 0


def _left_out(record: logging.LogRecord, count: int) -> logging.LogRecord:
    text = "%d more lines like the next one were suppressed"
    return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, (count,), None)


@contextmanager
def log_lines(level: str, form: str = "text") -> Iterator[None]:
    """Write log lines to stderr instead of a command's notes, in one of `FORMATS`: also the warnings of libraries, and exceptions
    that end a thread or cannot be raised.
    """
    handler = LineHandler(form=form)
    names = [logging.getLogger(name) for name in ("tidelog", "asyncio")]
    previous = [(log, log.level) for log in names]
    hooks = threading.excepthook, sys.unraisablehook
    notices.uninstall()
    logging.getLogger().addHandler(handler)
    for log in names:
        log.setLevel(level.upper())
    threading.excepthook, sys.unraisablehook = _thread_ended, _not_raised
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = hooks
        logging.getLogger().removeHandler(handler)
        for log, before in previous:
            log.setLevel(before)
        notices.install()


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = "?" if args.thread is None else args.thread.name
        logger.error("thread %s ended with an unexpected error: %s", name, args.exc_value, exc_info=args.exc_value)


def _not_raised(args: sys.UnraisableHookArgs) -> None:
    logger.error("%s: %s", args.err_msg or "an exception cannot be raised", args.exc_value, exc_info=args.exc_value)
