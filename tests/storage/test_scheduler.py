"""Background tasks on a clock that only moves when a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.storage import scheduler as scheduler_module
from tidelog.storage.scheduler import Rest, Scheduler


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


def test_a_slice_leaves_the_rest_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that waits is touched for it: ten thousand tasks in a hundred slices cost what they cost in one."""
    monkeypatch.setattr(scheduler_module, "SLICE_S", 0)
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[str] = []
    scheduler.schedule("every", lambda: ran.append("every"), delay_ms=1, period_ms=10)
    scheduler.schedule("again", lambda: scheduler.schedule("new", lambda: ran.append("new")), delay_ms=5)
    scheduler.schedule("last", lambda: ran.append("last"), delay_ms=5)
    clock.advance(10)
    waiting = len(scheduler._waiting)
    assert [scheduler.tick(is_slice=True) for _ in range(5)] == [1, 1, 1, 1, 0]
    assert (ran, len(scheduler._waiting)) == (["every", "last", "new"], waiting - 2)
    clock.advance(10)
    assert scheduler.tick() == 1  # In one: a task that is due again, and what a task schedules, come with the next.
    scheduler.schedule("again", lambda: scheduler.schedule("new", lambda: ran.append("new")))
    assert (scheduler.tick(), scheduler.tick()) == (1, 1)


def test_what_is_cancelled_takes_no_memory_until_its_time() -> None:
    """A session that is over must not be kept, with all that hangs on it, until it would have ended."""
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[int] = []
    for index in range(10_000):
        one = scheduler.schedule("session", partial(ran.append, index), delay_ms=100_000)
        if index % 1_000:
            one.cancel()
        assert scheduler.next_due_ms == 100_000
    assert len(scheduler._waiting) < 1100
    clock.advance(100_000)
    assert scheduler.tick() == 10
    assert ran == list(range(0, 10_000, 1_000))


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


def test_a_clock_that_is_set_back_puts_nothing_off() -> None:
    """What had 10 ms to wait has 10 ms to wait, though the clock is a year behind."""
    clock = ManualClock(1_000_000_000_000)
    scheduler = Scheduler(clock)
    ran: list[str] = []
    scheduler.schedule("once", lambda: ran.append("once"), delay_ms=10)
    scheduler.schedule("often", lambda: ran.append("often"), delay_ms=20, period_ms=20)
    clock.advance(-365 * 24 * 3600 * 1000)
    assert scheduler.tick() == 0
    assert scheduler.next_due_ms == clock.now_ms() + 10
    clock.advance(10)
    scheduler.tick()
    assert ran == ["once"]
    clock.advance(-1000)
    scheduler.tick()
    clock.advance(10)
    scheduler.tick()
    assert ran == ["once", "often"]
    assert scheduler.next_due_ms == clock.now_ms() + 20


def test_a_clock_that_leaps_forward_runs_each_task_once() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[int] = []
    scheduler.schedule("often", lambda: ran.append(clock.now_ms()), period_ms=10)
    for _ in range(3):
        clock.advance(10**12)
        scheduler.tick()
        clock.advance(-(10**12))
        scheduler.tick()
        clock.advance(5)
        scheduler.tick()
    assert len(ran) == 3


def test_the_same_error_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    reasons: list[str] = ["full", "full", "", "full", "worse"]

    def task() -> None:
        reason = reasons.pop(0)
        if reason:
            raise StorageError(reason)

    scheduler.schedule("checkpoint", task, period_ms=10)
    while reasons:
        scheduler.tick()
        clock.advance(10)
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"background task checkpoint failed: {reason}" for reason in ("full", "full", "worse")]


def test_an_interruption_loses_no_task() -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []

    def interrupt() -> None:
        if not ran.count("interrupted"):
            ran.append("interrupted")
            raise KeyboardInterrupt

    scheduler.schedule("first", lambda: ran.append("first"))
    scheduler.schedule("second", interrupt)
    scheduler.schedule("third", lambda: ran.append("third"))
    with pytest.raises(KeyboardInterrupt):
        scheduler.tick()
    assert scheduler.tick() == 2
    assert ran == ["first", "interrupted", "third"]


def test_several_threads_may_schedule() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        for i in range(200):
            pool.submit(scheduler.schedule, "task", lambda i=i: ran.append(i), delay_ms=i % 7)
    clock.advance(7)
    assert scheduler.tick() == 200
    assert sorted(ran) == list(range(200))


def test_what_can_be_done_ahead_is_done_elsewhere_and_the_task_here() -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []
    threads: list[tuple[Callable[[], object], Callable[[object], None]]] = []

    def put_off(work: Callable[[], object], done: Callable[[object], None]) -> None:
        threads.append((work, done))

    for name in ("first", "second", "third"):
        scheduler.schedule(name, partial(ran.append, name), ahead=partial(ran.append, f"{name} ahead"))
    assert scheduler.tick(put_off) == 3
    assert ran == []
    for work, done in (threads[1], threads[0]):
        done(work())
    assert ran == ["second ahead", "second", "first ahead", "first"]
    scheduler.shutdown()  # The third one's thread has not come to it: it is done here.
    assert ran[4:] == ["third"]
    threads[2][1](None)
    assert ran[4:] == ["third"]


def test_a_tick_without_threads_finishes_what_is_elsewhere() -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []
    threads: list[Callable[[object], None]] = []
    scheduler.schedule("task", partial(ran.append, "task"), ahead=partial(ran.append, "ahead"))
    scheduler.tick(lambda _, done: threads.append(done))
    assert ran == []
    assert scheduler.tick() == 0
    threads[0](None)
    assert ran == ["task"]


def test_what_a_task_leaves_is_done_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[str] = []
    threads: list[tuple[Callable[[], object], Callable[[object], None]]] = []

    def task() -> Rest:
        ran.append("noted")
        return Rest(partial(ran.append, "written"))

    def put_off(work: Callable[[], object], done: Callable[[object], None]) -> None:
        threads.append((work, done))

    scheduler.schedule("checkpoint", task, period_ms=10)
    scheduler.tick(put_off)
    assert ran == ["noted"]
    clock.advance(10)
    scheduler.tick(put_off)
    assert ran == ["noted"], "the last one is still being written"
    work, done = threads.pop()
    done(work())
    assert ran == ["noted", "written"]
    clock.advance(10)
    scheduler.tick()
    assert ran == ["noted", "written"] * 2
    clock.advance(10)
    scheduler.tick(put_off)
    threads.pop()[1](StorageError("full"))
    assert [record.getMessage() for record in caplog.records] == ["background task checkpoint failed: full"]


def test_without_threads_there_is_no_ahead() -> None:
    scheduler = Scheduler(ManualClock(0))
    ran: list[str] = []
    scheduler.schedule("task", lambda: ran.append("task"), ahead=lambda: ran.append("ahead"))
    assert scheduler.tick() == 1
    assert ran == ["task"]


def test_many_steps_are_taken_in_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that has much to look at leaves the rest to the ticks after it."""
    now_s = iter(range(1000))
    monkeypatch.setattr(scheduler_module, "monotonic", lambda: next(now_s) * scheduler_module.SLICE_S / 3)
    scheduler = Scheduler(ManualClock(0))
    taken: list[int] = []
    scheduler.schedule("steps", lambda: scheduler.in_slices("steps", (taken.append(one) for one in range(10))))
    counts = []
    while scheduler.tick(is_slice=True):
        counts.append(len(taken))
    assert taken == list(range(10))
    assert counts == [3, 6, 9, 10]


def test_an_owner_that_sleeps_is_woken_for_what_is_due_sooner() -> None:
    """Also for what another thread's work schedules when it comes back."""
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    woken: list[int | None] = []
    threads: list[Callable[[object], None]] = []
    scheduler.wake = lambda: woken.append(scheduler.next_due_ms)
    scheduler.elsewhere = lambda _, done: threads.append(done)
    scheduler.schedule("far", lambda: None, delay_ms=1000)
    scheduler.schedule("near", lambda: None, delay_ms=10)
    scheduler.schedule("between", lambda: None, delay_ms=100)
    assert woken == [1000, 10]
    scheduler.aside(lambda: None, lambda _: scheduler.schedule("next step", lambda: None))
    threads.pop()(None)
    assert woken == [1000, 10, 0]


@pytest.mark.parametrize("is_ahead", [False, True])
def test_what_continues_after_other_threads_has_a_slice(monkeypatch: pytest.MonkeyPatch, is_ahead: bool) -> None:
    """It runs between two ticks, on the thread that clients wait for: without a slice nothing would end it."""
    now_s = iter(range(1000))
    monkeypatch.setattr(scheduler_module, "monotonic", lambda: next(now_s) * scheduler_module.SLICE_S / 3)
    scheduler = Scheduler(ManualClock(0))
    threads: list[Callable[[object], None]] = []
    scheduler.elsewhere = lambda _, done: threads.append(done)
    taken: list[int] = []
    steps = (taken.append(one) for one in range(10))
    if is_ahead:
        scheduler.schedule("ahead", lambda: scheduler.in_slices("steps", steps), ahead=lambda: None)
        scheduler.tick(scheduler.elsewhere)
    else:
        scheduler.aside(lambda: None, lambda _: scheduler.in_slices("steps", steps))
    threads.pop()(None)
    assert taken == [0, 1, 2]
    assert not scheduler.is_over
    assert scheduler.tick(is_slice=True) == 1
    assert 3 < len(taken) < 10
