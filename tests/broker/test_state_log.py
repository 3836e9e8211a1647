"""Internal topics as tables, and delays on the log's clock: what coordinators stand on."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.groups.offset_requests import Offset, commit
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tests.storage.known_topics import forget
from tidelog.broker.coordinators.state_log import READ_BYTES, InternalTopic, StateLog
from tidelog.clock import ManualClock, SystemClock, steady
from tidelog.groups.offsets_topic import java_hash
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.state_batches import StateBatch
from tidelog.records.validation import AppendOrigin
from tidelog.storage.steps import run_steps
from tidelog.wire.error_codes import ErrorCode

TOPIC = "__test_state"


def state_log(broker: RunningBroker, partitions: int = 3, replication_factor: int = 1) -> StateLog:
    node = broker.node
    wanted = InternalTopic(TOPIC, partitions, replication_factor, {"cleanup.policy": "compact"})
    return StateLog(node, node.leadership, node.topics, node.topic_changes, node.topic_creation, wanted)


def made(broker: RunningBroker, log: StateLog) -> ErrorCode:
    return run_steps(log.making(), broker.node.manager.metadata)


def loaded(broker: RunningBroker) -> tuple[StateLog, dict[int, list[StateBatch]]]:
    """Load everything; return what was found in each partition."""
    log = broker.on_loop(lambda: state_log(broker))
    found: dict[int, list[StateBatch]] = {}
    expected = sum(1 for key, one in broker.node.manager.logs.items() if key.topic == TOPIC and one.log_end_offset)
    done = threading.Event()

    def install(partition: int, batches: list[StateBatch]) -> None:
        found[partition] = batches
        if len(found) == expected:
            done.set()

    broker.on_loop(lambda: log.load(list, install))
    assert done.wait(PATIENCE_S)
    return log, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("Aa", 2112), ("BB", 2112), ("\U0001f600", 1772899)],
)
def test_javas_hash(text: str, expected: int) -> None:
    """The fourth one hashes to -2^31 in Java, which Kafka takes for 0."""
    assert java_hash(text) == expected


def test_a_table_is_found_again(start_broker: StartBroker) -> None:
    broker = start_broker()
    producer = Producer(7, 1, 0)
    big = b"v" * (READ_BYTES * 2 // 3)

    def write() -> None:
        log = state_log(broker)
        assert log.readiness(0) is ErrorCode.NOT_COORDINATOR
        assert made(broker, log) is ErrorCode.NONE
        assert made(broker, log) is ErrorCode.NONE
        log.append(0, [(b"a", b"1"), (b"b", None)])
        for value in (big, big, big):
            log.append(0, [(b"c", value)])
        log.append(2, [(b"d", b"2")], producer=producer, is_transactional=True)
        log.append_batch(2, build_end_txn_marker(0, 5, ControlType.COMMIT, producer))
        assert broker.node.manager.log(TOPIC, 0).high_watermark == 5

    broker.on_loop(write)
    broker.stop()
    broker.start()
    log, found = loaded(broker)
    assert [[(one.key, one.value) for one in batch.records] for batch in found[0]] == [
        [(b"a", b"1"), (b"b", None)],
        *[[(b"c", big)]] * 3,
    ]
    assert [(batch.producer_id, batch.producer_epoch, batch.is_transactional, batch.marker) for batch in found[2]] == [
        (7, 1, True, None),
        (7, 1, True, ControlType.COMMIT),
    ]
    assert [len(batch.records) for batch in found[2]] == [1, 0]
    assert set(found) == {0, 2}
    assert [broker.on_loop(lambda p=p: log.readiness(p)) for p in range(4)] == [ErrorCode.NONE] * 3 + [ErrorCode.NOT_COORDINATOR]  # type: ignore[misc]


def test_what_is_committed_at_once(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start_broker()

    def look() -> None:
        log = state_log(broker)
        assert log.partition_at_once("a") is None  # There is no topic.
        assert made(broker, log) is ErrorCode.NONE
        assert [log.partition_at_once(name) for name in ("a", "b", "c")] == [1, 2, 0]
        stored = broker.node.manager.log(TOPIC, 1)
        with monkeypatch.context() as patch:
            patch.setattr(log, "wanted", log.wanted._replace(codec=Codec.GZIP))
            assert log.partition_at_once("a") is None
        with monkeypatch.context() as patch:
            patch.setattr(stored.local, "config", replace(stored.config, flush_messages=5))
            assert (log.partition_at_once("a"), log.partition_at_once("b")) == (None, 2)
        stored.append_as_leader(log.build([(b"a", b"1")]), 0, origin=AppendOrigin.COORDINATOR)  # Nobody has made it visible.
        assert log.partition_at_once("a") is None
        assert log.uncommitted == {1}
        assert log.partition_at_once("b") is None  # Until somebody has waited for what is uncommitted.
        log.uncommitted.clear()
        assert log.partition_at_once("b") == 2

    broker.on_loop(look)


def test_loading_and_failing_are_told(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = start_broker()
    waiting, may_go = threading.Event(), threading.Event()

    def read(batches: Any) -> None:
        waiting.set()
        may_go.wait(PATIENCE_S)
        raise ValueError("no table")

    def begin() -> StateLog:
        log = state_log(broker)
        made(broker, log)
        log.append(1, [(b"a", b"1")])
        log.load(read, lambda partition, table: None)
        return log

    log = broker.on_loop(begin)
    assert waiting.wait(PATIENCE_S)
    assert broker.on_loop(lambda: log.readiness(1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.on_loop(lambda: log.readiness(0)) is ErrorCode.NONE
    may_go.set()
    while broker.on_loop(lambda: log.readiness(1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    assert broker.on_loop(lambda: log.readiness(1)) is ErrorCode.NOT_COORDINATOR
    assert f"{TOPIC}-1 has no coordinator, because the partition cannot be read: no table" in caplog.text


def test_more_replicas_than_brokers(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = start_broker()
    log = broker.on_loop(lambda: state_log(broker, replication_factor=3))
    assert broker.on_loop(lambda: made(broker, log)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "it needs 3 replicas, but there is only one broker" in caplog.text


def test_a_found_topic_gets_its_configuration_with_the_first_append(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    broker.on_loop(lambda: made(broker, state_log(broker)))
    broker.stop()
    forget(broker.data_dir)
    broker.start()
    log = broker.on_loop(lambda: state_log(broker))
    assert not broker.on_loop(lambda: broker.node.manager.is_configuration_known(TOPIC))
    broker.on_loop(lambda: log.append(0, [(b"a", b"1")]))
    wanted = {"cleanup.policy": "compact"}
    wait_until(lambda: broker.on_loop(lambda: broker.node.topics.properties(TOPIC)) == wanted, "its configuration")


class TestDelays:
    def test_by_a_clock_that_is_moved(self, start_broker: StartBroker) -> None:
        clock = ManualClock(1_000_000)
        broker = start_broker(clock=clock)
        delays = broker.node.delays
        called: list[str] = []

        def arrange() -> None:
            delays.call_later(3000, lambda: called.append("three"))
            delays.call_later(1000, lambda: called.append("one"))
            delays.call_later(2000, lambda: called.append("never")).cancel()
            delays.every(1500, lambda: called.append("again"), "again")

        broker.on_loop(arrange)
        for _ in range(4):
            clock.advance(1000)
            broker.on_loop(broker.running.tick)
        assert called == ["one", "again", "three", "again"]

    def test_by_the_machines_clock(self, broker: RunningBroker) -> None:
        done = threading.Event()
        never = threading.Event()

        def arrange() -> None:
            broker.node.delays.call_later(3_600_000, never.set)
            broker.node.delays.call_later(5, done.set)

        broker.on_loop(arrange)
        assert done.wait(PATIENCE_S)
        assert not never.is_set()

    def test_a_clock_that_is_set_does_not_matter(self) -> None:
        assert steady(SystemClock()).now_ms() < SystemClock().now_ms()
        clock = ManualClock(5)
        assert steady(clock) is clock


def test_groups_of_a_partition_that_was_offline_at_the_start(start_broker: StartBroker) -> None:
    """When it is back its groups are: until they are read nobody is reported that they have committed nothing."""
    broker = start_broker(offsets_topic_num_partitions=1)
    broker.create_topic("t")
    with broker.client() as client:
        assert commit(client, "g", {("t", 0): Offset(5)}) == {("t", 0): 0}
    broker.stop()
    epochs = broker.data_dir / "__consumer_offsets-0" / "leader-epoch-checkpoint"
    content = epochs.read_bytes()
    epochs.unlink()
    epochs.mkdir()  # Reading it is an error of the operating system.
    broker.start()
    assert broker.on_loop(broker.node.manager.offline_partitions)
    assert broker.on_loop(lambda: broker.node.groups.code_for("g")) is ErrorCode.NOT_COORDINATOR
    epochs.rmdir()
    epochs.write_bytes(content)
    wait_until(lambda: broker.on_loop(lambda: broker.node.groups.code_for("g")) is ErrorCode.NONE, "its groups")
    group = broker.on_loop(lambda: broker.node.groups.get("g"))
    assert group is not None
    assert [key.topic for key in group.offsets.partitions()] == ["t"]
