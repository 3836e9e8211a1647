"""The leader's epoch: one more after each unclean end, never less, and in every batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from tests.patience import PATIENCE_S
from tidelog import Broker
from tidelog.broker.partitions.flushes import Flushes
from tidelog.broker.partitions.leadership import SingleLeadership
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.reader.metadata_log import METADATA_DIR
from tidelog.records.batch import iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager

NOW_MS = 1_700_000_000_000


def metadata_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / METADATA_DIR).iterdir()}


def append(manager: LogManager, epoch: int) -> None:
    log = manager.log("t", 0)
    log.append_as_leader(build_batch_v2([Record(0, NOW_MS, 0, None, b"v")]), epoch)
    log.update_high_watermark(log.log_end_offset)


def led(folder: Path, work: Callable[[LogManager, int], None], *, is_clean: bool = True) -> int:
    """Start on a folder, do something as its leader, end; return the epoch."""
    manager = LogManager(folder, ManualClock(NOW_MS))
    manager.startup()
    if "t" not in manager.topics():
        manager.create_topic("t", 1, {"retention.ms": 1000})
    epoch = SingleLeadership(manager, lambda key: None, Flushes(manager).appended).epoch_of(TopicPartition("t", 0))
    work(manager, epoch)
    if is_clean:
        manager.shutdown()
    else:
        manager.abort()
    return epoch


def test_clean_ends_change_nothing(tmp_path: Path) -> None:
    """And write nothing."""
    led(tmp_path, append)
    before = metadata_files(tmp_path)
    assert [led(tmp_path, append) for _ in range(3)] == [0, 0, 0]
    assert metadata_files(tmp_path) == before


def test_each_unclean_end_counts(tmp_path: Path) -> None:
    assert [led(tmp_path, append, is_clean=False) for _ in range(3)] == [0, 1, 2]
    assert [led(tmp_path, append) for _ in range(2)] == [3, 3]

    def look(manager: LogManager, _: int) -> None:
        log = manager.log("t", 0)
        data = log.read(0, 10_000).data
        assert [header.leader_epoch for header in iter_headers(data)] == [0, 1, 2, 3, 3]
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (1, 1), (2, 2), (3, 3)]

    led(tmp_path, look)


def test_an_empty_folder_has_lost_nothing(tmp_path: Path) -> None:
    assert [led(tmp_path, lambda *_: None, is_clean=False) for _ in range(3)] == [0, 0, 0]


def test_a_partition_that_comes_back_is_led_before_the_disk_knows_it(tmp_path: Path) -> None:
    """All of a disk's may come back at the same moment, and have lost their ends: no client waits for a flush of each."""
    manager = LogManager(tmp_path, ManualClock(1000))
    manager.startup()
    manager.create_topic("t", 3)
    leadership = SingleLeadership(manager, lambda key: None, Flushes(manager).appended)
    elsewhere: list[tuple[Callable[[], object], Callable[[object], None]]] = []
    manager.scheduler.elsewhere = lambda work, done: elsewhere.append((work, done))
    for partition in range(3):
        leadership.on_return(manager.log("t", partition), has_lost=True)
        assert leadership.epoch_of(TopicPartition("t", partition)) == 1
    assert manager.metadata.is_waiting and len(elsewhere) == 3
    for work, done in elsewhere:
        done(work())
    assert not manager.metadata.is_waiting
    leadership.on_return(manager.log("t", 0), has_lost=False)
    assert len(elsewhere) == 3
    manager.scheduler.elsewhere = None
    manager.shutdown()
    epochs: list[int] = []
    led(tmp_path, lambda manager, epoch: epochs.append(epoch))
    assert epochs == [1]


def test_it_outlives_the_records_that_know_it(tmp_path: Path) -> None:
    """A log forgets its epochs with its last record; clients do not."""
    led(tmp_path, append, is_clean=False)

    def empty(manager: LogManager, epoch: int) -> None:
        manager.log("t", 0).truncate_fully_and_start_at(10)
        assert epoch == 1

    led(tmp_path, empty)
    assert led(tmp_path, append) == 1


def test_epochs_from_elsewhere_are_gone_on_with(tmp_path: Path) -> None:
    """A folder of Kafka's, or one whose metadata was lost: the newest epoch that a log knows. Another topic begins with 0."""
    led(tmp_path, lambda manager, _: append(manager, 7))
    assert led(tmp_path, append) == 7
    assert led(tmp_path, append, is_clean=False) == 7
    assert led(tmp_path, append) == 8
    assert led(tmp_path, lambda manager, _: manager.delete_topic("t")) == 8
    assert led(tmp_path, append) == 0


def test_a_consumer_goes_on_after_a_kill(tmp_path: Path) -> None:
    """librdkafka asks where the old epoch ended (KIP-320), and misses nothing and sees nothing twice."""
    with Broker(tmp_path / "data") as broker:
        broker.call(lambda running: running.node.manager.create_topic("t", 1))
        quick = {"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
        producer = confluent_kafka.Producer({**quick, "log_level": 0})
        consumer = confluent_kafka.Consumer(
            {**quick, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        values: list[bytes | None] = []
        for life in range(2):
            for i in range(100):
                producer.produce("t", b"%d %d" % (life, i), partition=0)
            assert producer.flush(PATIENCE_S) == 0
            while len(values) < 100 * (life + 1):
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                error = message.error()
                if error is None:
                    values.append(message.value())
                else:
                    assert error.retriable(), error
            broker.kill()
            broker.start()
        epoch = broker.call(lambda running: running.node.leader_epoch(TopicPartition("t", 0)))
        consumer.close()
    assert values == [b"%d %d" % (life, i) for life in range(2) for i in range(100)]
    assert epoch == 2
