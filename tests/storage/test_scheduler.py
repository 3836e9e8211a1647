"""Background tasks on a clock that only moves when told to."""

from __future__ import annotations

import pytest

from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.storage.scheduler import Scheduler


def test_tasks_run_when_they_are_due_in_order_of_time() -> None:
    clock = ManualClock(1000)
    scheduler = Scheduler(clock)
    ran: list[str] = []
    scheduler.schedule("late", lambda: ran.append("late"), delay_ms=20)
    scheduler.schedule("soon", lambda: ran.append("soon"), delay_ms=10)
    assert scheduler.next_due_ms == 1010
    assert scheduler.tick() == 0
    clock.advance(20)
    assert scheduler.tick() == 2
    assert ran == ["soon", "late"]
    assert scheduler.next_due_ms is None


def test_periodic_tasks_come_again_but_only_once_a_tick() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[int] = []
    task = scheduler.schedule("often", lambda: ran.append(clock.now_ms()), delay_ms=5, period_ms=10)
    for _ in range(3):
        clock.advance(10)
        scheduler.tick()
    clock.advance(1000)
    scheduler.tick()
    assert ran == [10, 20, 30, 1030]
    task.cancel()
    clock.advance(1000)
    assert scheduler.tick() == 0
    assert scheduler.next_due_ms is None


def test_a_clock_that_goes_back_runs_nothing_twice() -> None:
    clock = ManualClock(100)
    scheduler = Scheduler(clock)
    ran: list[str] = []
    scheduler.schedule("once", lambda: ran.append("once"))
    scheduler.tick()
    clock.advance(-50)
    scheduler.tick()
    assert ran == ["once"]


def test_a_task_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []
    scheduler.schedule("broken", lambda: 1 // 0)
    scheduler.schedule("sound", lambda: ran.append("sound"))
    scheduler.tick()
    assert ran == ["sound"]
    assert "background task broken failed" in caplog.text


def test_shutdown_does_what_was_promised_once() -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []
    scheduler.schedule("delete-file", lambda: ran.append("deleted"), delay_ms=60_000)
    scheduler.schedule("retention", lambda: ran.append("retention"), delay_ms=1, period_ms=1)
    scheduler.shutdown()
    assert ran == ["deleted"]
    assert scheduler.next_due_ms is None


@pytest.mark.parametrize(("delay_ms", "period_ms"), [(-1, None), (0, 0)])
def test_times_that_make_no_sense(delay_ms: int, period_ms: int | None) -> None:
    with pytest.raises(InvalidArgumentError):
        Scheduler(ManualClock(0)).schedule("x", lambda: None, delay_ms=delay_ms, period_ms=period_ms)
