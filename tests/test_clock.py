"""A clock that is moved by hand: what it takes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tidelog.clock import ManualClock


@pytest.mark.parametrize(
    ("now", "now_ms"),
    [
        (0, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(2026, 11, 23, 6, 0, 0, 123_999, tzinfo=UTC), 1_795_413_600_123),
    ],
)
def test_it_begins_at(now: Any, now_ms: int) -> None:
    assert ManualClock(now).now_ms() == now_ms


def test_it_advances_by_milliseconds_and_timedeltas() -> None:
    clock = ManualClock(1_000)
    heard: list[int] = []
    clock.listen(lambda: heard.append(clock.now_ms()))
    clock.advance(500)
    clock.advance(timedelta(days=1, microseconds=1_999))
    clock.advance(timedelta(seconds=-1))
    assert heard == [1_500, 86_401_501, 86_400_501]


@pytest.mark.parametrize("now", ["2026-01-01", 1.5, True, None])
def test_what_is_no_time_is_refused(now: Any) -> None:
    with pytest.raises(TypeError, match="epoch milliseconds"):
        ManualClock(now)
    with pytest.raises(TypeError, match="milliseconds or a timedelta"):
        ManualClock().advance(now)


def test_a_time_zone_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2026, 1, 1))
