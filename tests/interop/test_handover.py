"""`tidelog handover`: topics that Tidelog wrote become a running Kafka's own, by the way a user takes."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.history import Writer
from tests.interop.gate import first_of
from tests.interop.seen import Seen, differences, see, serve
from tests.kafka import Kafka391
from tests.kafka.clients import NewRow, consume, produce
from tests.patience import PATIENCE_S
from tidelog import Broker
from tidelog.clock import SystemClock
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager

BASE = {"segment.bytes": 6000, "index.interval.bytes": 300, "retention.ms": -1}
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("taking-over")) as broker:
        yield broker


def write(folder: Path, *, epoch: int = 0) -> dict[str, Seen]:
    """Topics of an engine, of one partition each, closed cleanly; what the engine serves of them."""
    seen = {}
    with LogManager(folder, SystemClock()) as manager:
        for number, (name, settings) in enumerate(
            {
                "plain": {},
                "append-time": {"message.timestamp.type": "LogAppendTime"},
                "kept-from": {"compression.type": "lz4"},
                "nothing": {},
            }.items()
        ):
            manager.create_topic(f"{name}-{epoch}", 1, {**BASE, **settings})
            log = manager.log(f"{name}-{epoch}", 0)
            log.maybe_assign_epoch_start_offset(epoch, 0)
            writer = Writer(0, random.Random(number + epoch), start_ms=NOW_MS - 3_600_000)
            for _ in range(0 if name == "nothing" else 150):
                writer.append(log, epoch)
            while writer.open_transactions:
                writer.append(log, epoch)
            log.update_high_watermark(log.log_end_offset)
            if name == "kept-from":
                # At a segment's start: with a log start inside one Kafka misses matches after it (docs/decisions, 0002).
                log.delete_records(log.segments.base_offsets[len(log.segments) // 2])
                assert log.delete_old_segments() > 0
            seen[f"{name}-{epoch}"] = see(log)
    return seen


def hand_over(source: Path, kafka: Kafka391, *options: str) -> str:
    """Run the command, stop Kafka when it asks for that, start Kafka when it is done."""
    folders: list[str | Path] = [source, "--to", kafka.data, "--bootstrap-server", kafka.bootstrap]
    command = [sys.executable, "-m", "tidelog", "handover", *folders, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "stop Kafka now" in line:
                kafka.stop()
        stdout = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, "".join(said)
    kafka.start()
    return stdout


@pytest.mark.parametrize("epoch", first_of(7, 0, why="epochs that are not ahead are the easier case"))
def test_kafka_takes_over(kafka: Kafka391, tmp_path: Path, epoch: int) -> None:
    """With leader epochs of Tidelog's that begin at 0, and that are ahead of Kafka's."""
    ours = write(tmp_path, epoch=epoch)
    kafka.topics |= dict.fromkeys(ours, 1)
    stdout = hand_over(tmp_path, kafka)
    assert f"4 partitions handed over to {kafka.data}; start Kafka" in stdout
    assert not list(kafka.data.glob("*-stray"))
    theirs = serve(kafka, {name: seen.targets for name, seen in ours.items()})
    assert not differences(ours, theirs)
    name = f"plain-{epoch}"
    produce(kafka.bootstrap, name, [NewRow(b"k", b"from Kafka", NOW_MS)], enable_idempotence=True)
    assert consume(kafka.bootstrap, name)[-1].value == b"from Kafka"
    assert consume(kafka.bootstrap, name)[-1].offset == ours[name].end
    assert (tmp_path / "tidelog-handover.json").exists() is False
    with LogManager(tmp_path, SystemClock()) as manager:
        assert see(manager.log(name, 0), ours[name].targets) == ours[name]


def test_run_again_and_refusals(kafka: Kafka391, tmp_path: Path) -> None:
    """A run that found Kafka running gives up after its time; the next one finishes it, and leaves alone what is there."""
    source = tmp_path / "source"
    with LogManager(source, SystemClock()) as manager:
        manager.create_topic("again", 2, BASE)
        for number in range(2):
            manager.log("again", number).append_as_leader(build(b"v%d" % number), 0)
    arguments = ["handover", source, "--to", kafka.data, "--bootstrap-server", kafka.bootstrap]
    ran = tidelog(*arguments, "--timeout", "1s")
    assert ran.returncode == 1
    assert "Kafka is still running: stop it, and run this command again" in ran.stderr
    kafka.stop()
    ran = tidelog(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert "2 partitions handed over" in ran.stdout
    kafka.topics["again"] = 2
    kafka.start()
    assert [consume(kafka.bootstrap, "again", number)[0].value for number in range(2)] == [b"v0", b"v1"]
    ran = tidelog(*arguments, "--timeout", "0s")
    assert ran.returncode == 1
    assert "topic 'again' already has records in Kafka" in ran.stderr
    other = tmp_path / "other"
    with LogManager(other, SystemClock()) as manager:
        manager.create_topic("again", 3, BASE)
    ran = tidelog("handover", other, "--to", kafka.data, "--bootstrap-server", kafka.bootstrap)
    assert ran.returncode == 1
    assert "a different number of partitions: found 2, expected 3" in ran.stderr
    ran = tidelog("handover", source, "--to", source, "--bootstrap-server", kafka.bootstrap)
    assert "a folder cannot be handed over to itself" in ran.stderr
    (source / ".kafka_cleanshutdown").unlink()
    ran = tidelog(*arguments)
    assert "was not shut down cleanly: it has been recovered" in ran.stderr


def build(value: bytes) -> bytearray:
    return build_batch_v2([Record(0, NOW_MS, 0, b"k", value)])


def tidelog(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)


DAY_MS = 86_400_000


def filled(folder: Path, topics: dict[str, dict[str, Any]], age_ms: int, count: int = 300) -> None:
    """Topics of one partition with records of this age, two batches or so in a segment."""
    with LogManager(folder, SystemClock()) as manager:
        for name, properties in topics.items():
            manager.create_topic(name, 1, {"segment.bytes": 6000, **properties})
            log = manager.log(name, 0)
            for number in range(0, count, 10):
                records = [Record(n, NOW_MS - age_ms + number + n, 0, b"k%d" % n, b"v" * 200) for n in range(10)]
                log.append_as_leader(build_batch_v2(records), 0)
            log.update_high_watermark(log.log_end_offset)


def test_kafka_deletes_nothing_that_the_folder_keeps(tmp_path: Path) -> None:
    """The target's broker keeps records for a minute, and has a topic with settings of its own; ours come from three places."""
    quick = {"log.retention.ms": "60000", "log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "200"}
    with Kafka391(tmp_path / "kafka", quick) as kafka:
        # A value that is Kafka's default: the target's broker has another one.
        filled(tmp_path / "default", {"default": {"retention.ms": 7 * DAY_MS}, "unset": {}}, DAY_MS)
        kafka.topics |= {"default": 1, "unset": 1}
        hand_over(tmp_path / "default", kafka)
        # A topic that is there already; one whose broker's configuration kept it.
        filled(tmp_path / "others", {"already": {"retention.ms": -1}, "served": {}}, 30 * DAY_MS)
        kafka.create_topic("already")
        arguments = ["handover", tmp_path / "others", "--to", kafka.data, "--bootstrap-server", kafka.bootstrap]
        ran = tidelog(*arguments)
        assert ran.returncode == 1
        assert "already: retention.ms is 60000 in Kafka (the broker's configuration), -1 here" in ran.stderr
        assert "already-0: Kafka would delete 300 of its records when it starts" in ran.stderr
        assert "served-0: Kafka would delete 300 of its records when it starts" in ran.stderr
        assert "so nothing was handed over" in ran.stderr
        assert "served" not in kafka.admin.list_topics(timeout=PATIENCE_S).topics
        with Broker(tmp_path / "others", **{"log.retention.ms": -1}):
            pass  # The folder knows then what kept it.
        ran = tidelog(*arguments)
        assert "already-0: Kafka would" in ran.stderr
        assert "served-0" not in ran.stderr
        hand_over(tmp_path / "others", kafka, "--carry-settings")
        kafka.topics |= {"served": 1}
        time.sleep(2)  # Ten of Kafka's checks.
        for name in ("default", "unset", "already", "served"):
            assert len(consume(kafka.bootstrap, name)) == 300, name
