"""The log lines of `tidelog serve`: their form, and that nobody can fill a disk with them."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from tidelog.cli.printing import notices
from tidelog.cli.printing.log_lines import LINES, PERIOD_S, LineHandler, log_lines

logger = logging.getLogger("tidelog.broker.test")


@pytest.fixture
def command() -> Iterator[None]:
    """As within a run of the command line."""
    notices.install()
    yield
    notices.uninstall()


@pytest.mark.usefixtures("command")
def test_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines("info"):
        logger.info("served %d", 5)
        logger.debug("not told")
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("failed")
    logger.warning("a note again")
    first, second, *traceback, note = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} info    broker\.test: served 5", first)
    assert second.endswith("error   broker.test: failed")
    assert traceback[-1] == "ValueError: why"
    assert note == "note: a note again"


@pytest.mark.usefixtures("command")
def test_nobody_writes_lines_of_his_own(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines("info"):
        logger.info("refused: %s", "a\n2026-11-22 all is well\x1b[2J")
    notices.print_line("group a\nb: offsets set: 1")
    line, said = capsys.readouterr().err.splitlines()
    assert line.endswith(r"refused: a\n2026-11-22 all is well\x1b[2J")
    assert said == r"group a\nb: offsets set: 1"


@pytest.mark.usefixtures("command")
def test_objects(capsys: pytest.CaptureFixture[str]) -> None:
    name = 'a"}\n{"level": "info"}\u2028\x1b[2J\x85'
    with log_lines("info", "json"):
        logger.info("refused: %s", name)
        try:
            raise ValueError(name)
        except ValueError:
            logger.exception("failed")
    text = capsys.readouterr().err
    assert text.isascii()
    first, second = (json.loads(line) for line in text.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {"level": "info", "area": "broker.test", "message": f"refused: {name}"}
    assert list(second) == ["time", "level", "area", "message", "traceback"]
    assert second["traceback"].endswith(f"ValueError: {name}")


def test_of_each_kind_only_some(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    handler = LineHandler(lambda: seconds)
    logger.addHandler(handler)
    logger.setLevel("INFO")
    try:
        for number in range(LINES + 7):
            logger.info("refused %d", number)
        logger.info("another kind")
        seconds += PERIOD_S
        logger.info("refused %d", 100)
        logger.info("another kind")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    told = [line.partition("test: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        *(f"refused {number}" for number in range(LINES)),
        "another kind",
        "7 more lines like the next one were suppressed",
        "refused 100",
        "another kind",
    ]


def test_what_libraries_and_threads_say(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("of the thread")

    class Failing:
        def __del__(self) -> None:
            raise ValueError("of the object")

    notices.install()
    before = threading.excepthook, sys.unraisablehook
    with log_lines("info", "json"):
        thread = threading.Thread(target=fail, name="worker")
        thread.start()
        thread.join()
        one = Failing()
        del one
        logging.getLogger("botocore").warning("slow %s", "down")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        logger.info("ours, once")
    assert (threading.excepthook, sys.unraisablehook) == before
    notices.uninstall()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    thread_ended, not_raised, library, warning, ours = (line["message"] for line in lines)
    assert thread_ended == "thread worker ended with an unexpected error: of the thread"
    assert not_raised.endswith(": of the object")
    assert (library, ours) == ("slow down", "ours, once")
    assert "DeprecationWarning: old" in warning
    assert lines[0]["traceback"].endswith("ValueError: of the thread")
