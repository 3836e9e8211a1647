"""What happens beside the clients: background work on the loop's thread, and what is kept away from it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.patience import PATIENCE_S
from tidelog.broker.loop import event_loop
from tidelog.broker.loop.event_loop import LoopThreads
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.messages.api_versions import ApiVersionsRequest

BATCH = bytes(build_batch_v2([Record(0, 1000, CREATE_TIME, None, bytes(1000))]))


def test_a_finished_segment_is_forced_to_the_disk_elsewhere(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full segment takes the disk seconds: the loop's thread syncs none of it, and hears when it is done."""
    broker.create_topic("t", segment_bytes=2000)
    synced: list[tuple[str, str]] = []
    fsync = os.fsync
    is_flushed = threading.Event()

    def noted(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        fsync(fd)
        if name == "00000000000000000000.log":
            synced.append((threading.current_thread().name, name))
            is_flushed.set()

    monkeypatch.setattr(os, "fsync", noted)
    with broker.client() as client:
        for _ in range(2):
            broker.on_loop(lambda: broker.node.manager.log("t", 0).append_as_leader(bytearray(BATCH), 0))
        assert is_flushed.wait(PATIENCE_S)
        client.ask(ApiVersionsRequest(), 0)
        deadline = time.monotonic() + PATIENCE_S
        while broker.on_loop(lambda: broker.node.manager.log("t", 0).recovery_point) < 1:
            assert time.monotonic() < deadline
    assert [thread.startswith("tidelog-syncing") for thread, _ in synced] == [True]


def test_work_elsewhere_comes_back_with_what_it_raised(broker: RunningBroker) -> None:
    results: list[object] = []
    came = threading.Semaphore(0)

    def done(result: object) -> None:
        results.append(result)
        assert threading.current_thread().name == "broker"
        came.release()

    def fail() -> str:
        raise ValueError("no")

    broker.on_loop(lambda: broker.node.blocking.run(lambda: threading.current_thread().name, done))
    broker.on_loop(lambda: broker.node.blocking.run(fail, done))
    assert came.acquire(timeout=PATIENCE_S)
    assert came.acquire(timeout=PATIENCE_S)
    assert {str(result).rpartition("_")[0] or str(result) for result in results} == {"tidelog-blocking", "no"}


def test_timers(broker: RunningBroker) -> None:
    ran: list[int] = []
    came = threading.Event()

    def start() -> None:
        timers = broker.node.timers
        timers.call_later(30, came.set)
        timers.call_later(20, lambda: ran.append(2))
        timers.call_later(10, lambda: ran.append(1)).cancel()
        timers.call_later(0, lambda: ran.append(0))

    broker.on_loop(start)
    assert came.wait(PATIENCE_S)
    assert ran == [0, 2]


def test_background_work_goes_on_by_itself(start_broker: StartBroker) -> None:
    broker = start_broker(**{"log.initial.task.delay.ms": 10, "log.retention.check.interval.ms": 20})
    broker.create_topic("t", segment_bytes=2000, retention_bytes=0, file_delete_delay_ms=0)
    deleted = threading.Event()

    def append() -> None:
        log = broker.node.manager.log("t", 0)
        log.append_as_leader(bytearray(BATCH), 0)
        log.update_high_watermark(log.log_end_offset)

    for _ in range(5):
        broker.on_loop(append)

    def look() -> None:
        if broker.node.manager.log("t", 0).log_start_offset >= 4:
            deleted.set()
        else:
            broker.node.timers.call_later(10, look)

    broker.on_loop(look)
    assert deleted.wait(PATIENCE_S)


def test_what_is_due_at_once_does_not_wait_for_the_next_look(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that comes back from another thread, or a task of another thread, wakes the loop."""
    monkeypatch.setattr(event_loop, "MAX_WAIT_S", 1e6)
    scheduler = broker.node.manager.scheduler
    broker.on_loop(lambda: scheduler.schedule("look", lambda: None))  # From here on it waits for so long.
    done: list[str] = []
    is_over = threading.Event()

    def begin(left: int) -> None:
        scheduler.aside(lambda: done.append(threading.current_thread().name), lambda _: go_on(left - 1))

    def go_on(left: int) -> None:
        scheduler.schedule("step", lambda: begin(left) if left else is_over.set())

    broker.on_loop(lambda: go_on(10))
    assert is_over.wait(PATIENCE_S)
    assert len(done) == 10
    assert all(name.startswith("tidelog-syncing") for name in done)
    is_done = threading.Event()
    scheduler.schedule("of another thread", is_done.set)
    assert is_done.wait(PATIENCE_S)


def test_a_thread_that_does_not_come_back(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    may_end = threading.Event()

    def slow() -> None:
        may_end.wait(PATIENCE_S)

    threads = LoopThreads(broker._loop)
    threads.run(slow, lambda _: None)
    assert not threads.close(0.05)
    assert "slow" in caplog.text
    may_end.set()
    assert threads.close()


def test_results_that_come_after_the_end_are_dropped(broker: RunningBroker) -> None:
    """They would go on with work of their own, now on the loop's thread, which then waits for the disk."""
    delivered: list[object] = []
    is_worked = threading.Event()

    def begin_and_end() -> None:
        threads = LoopThreads(broker._loop)
        threads.run(is_worked.set, delivered.append)
        assert is_worked.wait(PATIENCE_S)
        assert threads.close()  # The result may be on its way: the loop has not run since.

    broker.on_loop(begin_and_end)
    broker.on_loop(lambda: None)
    assert delivered == []
