"""Lines of a loop that retries: changes at once, what stays once a minute, and never many."""

from __future__ import annotations

import logging

import pytest

from tidelog.broker.loop.retry_log import LINES, PERIOD_S, RetryLog


class Loop:
    """A loop that retries, on a clock that the test moves."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s = 1000.0
        self._caplog = caplog
        caplog.set_level(logging.INFO, "tests.retries")
        self.log = RetryLog(logging.getLogger("tests.retries"), now_s=lambda: self.now_s)

    def said(self) -> list[str]:
        """What was logged since it was asked last."""
        found = [record.getMessage() for record in self._caplog.records if record.name == "tests.retries"]
        self._caplog.clear()
        return found


@pytest.fixture
def loop(caplog: pytest.LogCaptureFixture) -> Loop:
    return Loop(caplog)


def test_a_reason_is_logged_at_once_and_then_once_a_minute(loop: Loop) -> None:
    for number in range(20 * 180):
        loop.now_s = 1000 + number / 20
        loop.log.failed("no answer of %s", "controller")
    more = f"no answer of controller (not logged meanwhile: {20 * 60 - 1})"
    assert loop.said() == ["no answer of controller", more, more]


def test_another_reason_and_the_recovery_are_logged_at_once(loop: Loop) -> None:
    loop.log.works("it works")
    loop.log.failed("a")
    loop.log.failed("a")
    loop.log.error("b")
    loop.log.failed("a")
    loop.log.works("it works")
    loop.log.works("it works")
    loop.log.failed("a")
    assert loop.said() == ["a", "b (not logged meanwhile: 1)", "it works", "a"]


@pytest.mark.parametrize("kind", ["reasons that differ", "recoveries"])
def test_there_are_never_many(loop: Loop, kind: str) -> None:
    minutes = 5
    for number in range(20 * 60 * minutes):
        loop.log.failed("%d ms", number if kind == "reasons that differ" else 7)
        if kind == "recoveries":
            loop.log.works("it works")
        loop.now_s = 1000 + number / 20
    said = loop.said()
    assert len(said) == minutes * LINES
    if kind == "reasons that differ":
        assert sum("not logged meanwhile" in line for line in said) == minutes - 1


def test_what_fails_again_after_a_flood_is_logged(loop: Loop) -> None:
    for number in range(100):
        loop.log.failed("%d ms", number)
    loop.now_s += PERIOD_S
    loop.log.failed("99 ms")
    assert loop.said()[-1] == f"99 ms (not logged meanwhile: {100 - LINES})"
