"""A disk that takes its time: who waits for it waits alone. Nothing on the loop's thread forces anything to the disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.conftest import StartBroker
from tests.broker.test_scarce import batch, codes, eventually, fetched, produce
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock, SystemClock
from tidelog.records.builder import Producer
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


class Disk:
    """`os.fsync`, watched: what was synced on which thread. While not `answers`, topic "t" waits; `error` is what comes of it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.error: int | None = None
        original = os.fsync

        def fsync(fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
            self.calls.append((threading.current_thread().name, path))
            if "/t-" in path:
                assert self.answers.wait(PATIENCE_S)
            if self.error is not None and path.endswith(".log"):
                raise OSError(self.error, os.strerror(self.error), path)
            original(fd)

        patch.setattr(os, "fsync", fsync)

    def on_the_loop(self) -> list[str]:
        """What was synced on the broker's own thread below a partition's folder."""
        return [path for name, path in self.calls if name == "broker" and ("/often-0" in path or "/rolls-0" in path)]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    yield Disk(monkeypatch)


def test_nothing_is_forced_to_the_disk_on_the_loop(start_broker: StartBroker, disk: Disk) -> None:
    """Appends, rolls, flushes by number and time, retention, DeleteRecords, checkpoints, deleted topics."""
    clock = ManualClock(SystemClock().now_ms())
    broker = start_broker(
        clock=clock,
        log_flush_scheduler_interval_ms=100,
        log_flush_offset_checkpoint_interval_ms=1000,
        log_flush_start_offset_checkpoint_interval_ms=1000,
        log_retention_check_interval_ms=1000,
        log_initial_task_delay_ms=0,
    )
    broker.create_topic("often", **{"flush.messages": 1})
    broker.create_topic("rolls", **{"segment.bytes": 1000, "retention.bytes": 3000, "flush.ms": 100, "file.delete.delay.ms": 100})
    disk.calls.clear()
    with broker.client() as client:
        for sequence in range(60):
            assert codes(produce(client, "often", range(1), batch(producer=Producer(3, 0, sequence)))) == {0}
            assert codes(produce(client, "rolls", range(1), batch(b"x" * 300))) == {0}
            if sequence == 40:
                asked = DeleteRecordsPartition(0, 35)
                assert client.ask(DeleteRecordsRequest([DeleteRecordsTopic("rolls", [asked])], 1000), 1)
            clock.advance(100)

        def is_kept() -> bool:
            clock.advance(1000)
            return len(broker.on_loop(lambda: list(broker.node.manager.log("rolls", 0).segments))) <= 6

        eventually(is_kept)
        assert any(path.endswith(".log") for _, path in disk.calls)
        assert any(path.endswith("leader-epoch-checkpoint.tmp") for _, path in disk.calls)
        broker.on_loop(lambda: broker.node.manager.delete_topic("rolls"))

        def is_gone() -> bool:
            clock.advance(100)
            return not list(broker.data_dir.glob("rolls-0*"))

        eventually(is_gone)
    assert disk.on_the_loop() == []


def test_who_waits_for_the_disk_waits_alone(start_broker: StartBroker, disk: Disk) -> None:
    broker = start_broker()
    broker.create_topic("t", **{"flush.messages": 1})
    broker.create_topic("other")
    with broker.client() as slow, broker.client() as quick, broker.client() as reader:
        produce(slow, "t", range(1), batch())
        produce(quick, "other", range(1), batch())
        disk.answers.clear()
        waiting = threading.Thread(target=produce, args=(slow, "t", range(1), batch()))
        waiting.start()
        eventually(lambda: broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset) == 2)
        for _ in range(20):
            assert codes(produce(quick, "other", range(1), batch())) == {0}
            quick.ask(ApiVersionsRequest(), 0)
            assert fetched(reader, "t", 0) == [0], "what is not flushed is not read"
        assert waiting.is_alive(), "the producer is answered after the flush"
        disk.answers.set()
        waiting.join()
        assert fetched(reader, "t", 0) == [0, 1]


def test_what_comes_together_is_flushed_together(start_broker: StartBroker, disk: Disk) -> None:
    broker = start_broker()
    broker.create_topic("t", **{"flush.messages": 1})
    with ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(20)]
        produce(clients[0], "t", range(1), batch())
        disk.answers.clear()
        disk.calls.clear()
        threads = [threading.Thread(target=produce, args=(client, "t", range(1), batch())) for client in clients]
        for thread in threads:
            thread.start()
        eventually(lambda: broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset) == 21)
        disk.answers.set()
        for thread in threads:
            thread.join()
        assert sum(path.endswith(".log") for _, path in disk.calls) <= 4
        assert broker.on_loop(lambda: broker.node.manager.log("t", 0).recovery_point) == 21


def test_a_flush_that_fails(start_broker: StartBroker, disk: Disk) -> None:
    """The producer hears of it, nobody reads the records before they are safe, and the partition comes back."""
    broker = start_broker()
    broker.create_topic("t", **{"flush.messages": 1})
    with broker.client() as client:
        assert produce(client, "t", range(1), batch(producer=Producer(5, 0, 0))) == {0: (0, 0)}
        disk.error = errno.EIO
        assert produce(client, "t", range(1), batch(producer=Producer(5, 0, 1))) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, -1)}
        disk.error = None
        eventually(lambda: not broker.on_loop(broker.node.manager.offline_partitions))
        assert produce(client, "t", range(1), batch(producer=Producer(5, 0, 1))) == {0: (0, 1)}
        assert fetched(client, "t", 0) == [0, 1]


def test_a_broker_that_stops_flushes_what_waits(tmp_path: Path, start_broker: StartBroker, disk: Disk) -> None:
    broker = start_broker()
    for number in range(20):
        broker.create_topic(f"t{number}", **{"segment.bytes": 1000})
    with broker.client() as client:
        for number in range(20):
            for _ in range(10):
                produce(client, f"t{number}", range(1), batch(b"x" * 300))
    broker.stop()
    assert broker.is_clean
    for number in range(20):
        folder = broker.data_dir / f"t{number}-0"
        assert (folder / "leader-epoch-checkpoint").read_text().split() == ["0", "1", "0", "0"]
        assert "topic_id" in (folder / "partition.metadata").read_text()
    broker.start()
    with broker.client() as client:
        assert produce(client, "t0", range(1), batch()) == {0: (0, 10)}
