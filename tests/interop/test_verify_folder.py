"""Folders of real brokers are whole and sound: while they write, roll, delete and compact, after a kill, after a stop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop import live_topics
from tests.interop.live_topics import Writer, wait_acknowledged
from tests.kafka import Kafka391
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.check.folder_verify import FolderReport, verify_folder
from tidelog.errors import SegmentChangedError
from tidelog.formats.dir_lock import is_locked
from tidelog.reader.log_dir import LogDir

LOOKS = 5


def said(report: FolderReport) -> list[str]:
    return [str(finding) for finding in report.all_findings() if finding.is_fault]


def verified(folder: Path) -> list[str]:
    return said(verify_folder(folder, sleep=lambda _: wait_checkpointed(folder)))


def wait_checkpointed(folder: Path) -> None:
    """Wait until a running broker has written its checkpoints twice: five times a second, where it does not stand still.

    The first time it may have been in the middle of it.
    """
    checkpoint = folder / "replication-offset-checkpoint"
    for _ in range(2 if is_locked(folder) else 0):
        before = checkpoint.stat().st_mtime_ns
        wait_until(lambda: checkpoint.stat().st_mtime_ns != before, f"another {checkpoint}", PATIENCE_S)  # noqa: B023


def missing(folder: Path) -> list[str]:
    """What readers say, who look only once."""
    log_dir = LogDir(folder)
    found = [str(one) for one in log_dir.missing_partitions()]
    for topic, numbers in log_dir.topics().items():
        for number in numbers:
            try:
                found += [str(one) for one in log_dir.log(topic, number).missing()]
            except SegmentChangedError:
                continue
    return found


def transact(broker: Kafka391, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, b"value %d" % n, b"key", 0, timestamp=live_topics.T + n)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE_S)


def test_a_brokers_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Kafka391(tmp_path_factory.mktemp("verified"), live_topics.BROKER) as broker:
        topics = live_topics.create(broker, {name: live_topics.SETTINGS[name] for name in ("grows", "shrinks-later", "compacts")})
        broker.create_topic("transactions", segment_bytes=16384, index_interval_bytes=512)
        transact(broker, "transactions")
        with Writer(broker, topics, rounds_s=0.005):
            wait_acknowledged(topics, 2000)
            assert is_locked(broker.data)
            for _ in range(LOOKS):
                assert missing(broker.data) == []
                assert verified(broker.data) == []
            for topic in topics:
                topic.is_killed = True
            broker.kill()
            # Nothing may fail before the broker is back: the writer waits for it.
            killed = [is_locked(broker.data), verified(broker.data), missing(broker.data)]
            copy = Path(shutil.copytree(broker.data, broker.data.parent / "copy"))
            shutil.rmtree(copy / "transactions-0")
            lost = [str(finding) for finding in verify_folder(copy).all_findings() if finding.kind == "missing"]
            broker.start()
            # A Kafka that was killed while it deleted a head may leave the leader epochs as they were, until it deletes again.
            (shrinks,) = (topic for topic in topics if topic.name == "shrinks-later")
            first = shrinks.log_start(broker)
            wait_until(lambda: shrinks.log_start(broker) > first, "the next head to go")
        assert killed == [False, [], []]
        assert [text.split(":")[0] for text in lost] == ["transactions-0"]
        broker.admin.delete_topics(["transactions"])["transactions"].result(PATIENCE_S)
        wait_until(lambda: not broker.partition_folder("transactions").exists(), "the topic to go")
        assert verified(broker.data) == []
        broker.stop()
        assert verified(broker.data) == []
        grows = broker.partition_folder("grows")
        second = sorted(grows.glob("*.log"))[1].stem
        for path in grows.glob(f"{second}.*"):
            path.unlink()
        assert any(f"[{int(second)}, " in text for text in verified(broker.data))
