"""Compaction in a broker that serves: how far it gets between two backoffs, counted on a clock that stands still."""

from __future__ import annotations

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.kafka.java import wait_until
from tidelog.broker.loop import event_loop
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record

T0 = 1_600_000_000_000
BACKOFF_MS = 1_000
PARTITIONS = 60
RECORDS = 600
KEYS = 5


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def broker(start_broker: StartBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    # The loop looks at its tasks when one is due, and never only because time has passed.
    monkeypatch.setattr(event_loop, "MAX_WAIT_S", 1e6)
    return start_broker(
        clock=clock, **{"log.cleaner.backoff.ms": BACKOFF_MS, "log.initial.task.delay.ms": 1, "tidelog.time.map.enable": False}
    )


def fill(broker: RunningBroker, topic: str, partition: int) -> None:
    log = broker.node.manager.log(topic, partition)
    for first in range(0, RECORDS, 10):
        records = [Record(i, T0, CREATE_TIME, b"key-%d" % ((first + i) % KEYS), bytes(100)) for i in range(10)]
        log.append_as_leader(build_batch_v2(records), 0)
    log.update_high_watermark(log.log_end_offset)


def test_one_pass_follows_the_other_until_nothing_is_dirty(broker: RunningBroker, clock: ManualClock) -> None:
    """Kafka's rule: it waits for log.cleaner.backoff.ms only where no log needs compaction."""
    broker.create_topic("t", PARTITIONS, cleanup_policy="compact", segment_bytes=20_000)
    for partition in range(PARTITIONS):
        broker.on_loop(lambda: fill(broker, "t", partition))  # noqa: B023
    manager = broker.node.manager
    cleaner = manager.cleaner
    assert cleaner is not None

    def compacted() -> int:
        return broker.on_loop(lambda: len(cleaner.manager.checkpoints))

    def back_off() -> None:
        clock.advance(BACKOFF_MS)
        manager.scheduler.schedule("look", lambda: None)  # What a timer does where the clock is the system's.

    assert compacted() == 0
    broker.on_loop(back_off)
    wait_until(lambda: compacted() == PARTITIONS, "all partitions to be compacted after one backoff")
    for partition in range(PARTITIONS):
        active = broker.on_loop(lambda: manager.log("t", partition).segments.active.base_offset)  # noqa: B023
        assert cleaner.manager.checkpoints[TopicPartition("t", partition)] == active > 0
