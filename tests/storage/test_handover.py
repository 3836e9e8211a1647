"""Handing partitions over, as far as that goes without Kafka: its folder is made as it leaves a new topic."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fields import check_fields
from tests.storage.known_topics import forget
from tests.storage.partition_logs import batch
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import DataDirNotFoundError, InvalidArgumentError, StorageError
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import read_topic_id, write_topic_id
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.records.builder import Producer
from tidelog.storage.handover import TopicToHand, deletions, place, recover
from tidelog.storage.handover import topics_to_hand as topics_with
from tidelog.storage.log_manager import LogManager
from tidelog.storage.topics.topic_settings import TopicSettings, stricter_settings

NOW_MS = 1_700_000_000_000
KAFKAS_ID = uuid.UUID("00000000-0000-4000-8000-00000000abcd")
IDS = {"t": KAFKAS_ID}
CONFIG = {"segment.bytes": 1000, "index.interval.bytes": 200, "retention.ms": -1}


def topics_to_hand(source: Path, broker: dict[str, Any] | None = None, wanted: Sequence[str] = ()) -> list[TopicToHand]:
    return topics_with(source, TopicSettings(source, broker), wanted)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two partitions: several segments of several epochs with a deleted prefix, and a single batch."""
    folder = tmp_path / "source"
    with LogManager(folder, ManualClock(NOW_MS)) as manager:
        manager.create_topic("t", 2, CONFIG)
        log = manager.log("t", 0)
        for n in range(60):
            log.append_as_leader(batch(timestamp=NOW_MS + n), n // 20)
        log.update_high_watermark(log.log_end_offset)
        log.delete_records(25)
        log.delete_old_segments()
        manager.log("t", 1).append_as_leader(batch(), 0)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A data folder as Kafka leaves it, with the new topic and another one."""
    folder = tmp_path / "kafka"
    for name in ("t-0", "t-1", "other-0"):
        kafkas_new_partition(folder / name)
    (folder / "other-0" / f"{0:020}.log").write_bytes(b"other")
    offsets = {TopicPartition("other", 0): 5, TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        write_offset_checkpoint(folder / name, offsets)
    write_offset_checkpoint(folder / "log-start-offset-checkpoint", {TopicPartition("other", 0): 3})
    return folder


def kafkas_new_partition(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").touch()
    write_topic_id(folder / "partition.metadata", KAFKAS_ID)
    LeaderEpochs([EpochEntry(0, 0)]).write(folder / "leader-epoch-checkpoint")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_handed_over(source: Path, target: Path) -> None:
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["other-0", "t-0", "t-1"]
    for number in range(2):
        with Log.open(source / f"t-{number}") as ours, Log.open(target / f"t-{number}") as theirs:
            assert theirs.topic_id == KAFKAS_ID
            assert theirs.log_end_offset == ours.log_end_offset
            assert [one.crc for one in theirs.headers()] == [one.crc for one in ours.headers()]
            assert {one.leader_epoch for one in theirs.headers()} == {0}
            assert [entry.epoch for entry in theirs.leader_epochs.entries] == [0]
            assert theirs.snapshots == ours.snapshots
    assert all(log.with_suffix(".timemap").exists() for log in target.glob("t-*/*.log") if log.stat().st_size)
    assert read_offset_checkpoint(target / "recovery-point-offset-checkpoint") == {("other", 0): 5, ("t", 0): 60, ("t", 1): 1}
    assert read_offset_checkpoint(target / "replication-offset-checkpoint") == {("other", 0): 5, ("t", 0): 60, ("t", 1): 1}
    assert read_offset_checkpoint(target / "log-start-offset-checkpoint") == {("other", 0): 3, ("t", 0): 25}


def test_partitions_take_the_place_of_kafkas(source: Path, target: Path) -> None:
    before = contents(source)
    heard: list[int] = []
    assert place(source, target, IDS, heard.append) == [("t", 0), ("t", 1)]
    check_handed_over(source, target)
    assert {name: data for name, data in contents(source).items() if name != ".lock"} == {
        name: data for name, data in before.items() if name != ".lock"
    }
    assert sum(heard) == sum(
        path.stat().st_size
        for path in source.glob("t-*/*")
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".timemap")
    )


@pytest.mark.parametrize("forged", [None, "", "0\n1\n0 0\n"])
def test_epochs_of_batches_that_the_checkpoint_does_not_tell(source: Path, target: Path, forged: str | None) -> None:
    for path in source.glob("t-*/leader-epoch-checkpoint"):
        path.unlink() if forged is None else path.write_text(forged)
    place(source, target, IDS)
    with Log.open(target / "t-0") as theirs:
        assert {one.leader_epoch for one in theirs.headers()} == {0}
        assert [entry.epoch for entry in theirs.leader_epochs.entries] == [0]


def test_run_again_it_leaves_alone_what_is_there(source: Path, target: Path) -> None:
    place(source, target, IDS)
    # Kafka went on with one of them.
    log = max((target / "t-1").glob("*.log"))
    with log.open("ab") as file:
        file.write(batch(1))
    after = contents(target)
    assert place(source, target, IDS) == []
    assert contents(target) == after


@pytest.mark.parametrize("moment", range(6))
def test_an_end_at_any_moment_is_made_good(source: Path, target: Path, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the n-th renaming of a folder: each folder that Kafka then finds is whole, and another run does the rest."""
    renamed = 0
    rename = Path.rename

    def dying(self: Path, other: Path) -> Path:
        nonlocal renamed
        if self.is_dir():
            if renamed == moment:
                raise KeyboardInterrupt
            renamed += 1
        return rename(self, other)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dying)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        if moment < 4:
            with pytest.raises(KeyboardInterrupt):
                place(source, target, IDS)
        else:
            place(source, target, IDS)
    for folder in target.iterdir():
        if folder.is_dir() and not folder.name.endswith("-delete"):
            assert read_topic_id(folder / "partition.metadata") == KAFKAS_ID
            assert list(folder.glob("*.log"))
    place(source, target, IDS)
    for folder in target.glob("*-delete"):
        shutil.rmtree(folder)  # As Kafka does at its start.
    check_handed_over(source, target)


def test_records_of_kafkas_own_are_not_overwritten(source: Path, target: Path) -> None:
    """Also where its log is longer, and its files are called the same."""
    log = target / "t-1" / f"{0:020}.log"
    log.write_bytes(batch(0, value=b"Kafka's own") + batch(1) + batch(2))
    before = contents(target)
    with pytest.raises(InvalidArgumentError, match="already holds records"):
        place(source, target, IDS)
    assert contents(target) == {**before, ".lock": b""}


def test_only_our_own_producers_go_along(source: Path, target: Path) -> None:
    """Kafka will give the others' ids to producers of its own, whose first sequence is 0."""
    with LogManager(source, ManualClock(NOW_MS)) as manager:
        log = manager.log("t", 1)
        for producer_id, transactional in ((5, False), (6, True), (2**41, False)):
            log.append_as_leader(batch(producer=Producer(producer_id, 0, 0), transactional=transactional), 0)
    place(source, target, IDS)
    with Log.open(target / "t-1") as theirs:
        last = target / "t-1" / f"{theirs.log_end_offset:020}.snapshot"
        assert theirs.snapshots[-1] == theirs.log_end_offset == 4
        assert {one.producer_id for one in read_snapshot(last)} == {6, 2**41}


def test_another_topics_folder_is_refused(source: Path, target: Path) -> None:
    write_topic_id(target / "t-0" / "partition.metadata", uuid.UUID(int=77))
    with pytest.raises(InvalidArgumentError, match="a different topic with the same name"):
        place(source, target, IDS)


def test_a_full_disk_leaves_kafkas_folder_as_it_was(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(target)

    def refusing(_path: Path, _topic_id: uuid.UUID) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidelog.storage.handover.write_topic_id", refusing)
    with pytest.raises(StorageError, match="No space left on device"):
        place(source, target, IDS)
    assert contents(target) == {**before, ".lock": b""}


def test_what_kafka_is_to_create(source: Path) -> None:
    (one,) = topics_to_hand(source)
    check_fields(one, name="t", partitions=2, is_configuration_known=True, oldest_format=2)
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    compaction = {"delete.retention.ms": "86400000", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": str(2**63 - 1)}
    assert one.properties == {"segment.bytes": "1000", "index.interval.bytes": "200", **kept, **compaction}
    assert one.open_transactions == []
    forget(source)
    (one,) = topics_to_hand(source, wanted=["t"])
    assert (one.properties, one.is_configuration_known, one.is_retention_default) == ({**kept, **compaction}, False, False)
    (one,) = topics_to_hand(source, {"log.retention.bytes": "5", "log.segment.bytes": "2000"}, ["t"])
    assert one.properties == {**kept, **compaction, "segment.bytes": "2000"}


@pytest.mark.parametrize(
    ("ours", "theirs", "stricter"),
    [
        ({}, {}, []),
        ({}, {"retention.ms": -1, "retention.bytes": -1}, []),
        ({"retention.ms": -1}, {}, ["retention.ms"]),
        ({"retention.ms": 9}, {"retention.ms": 8, "retention.bytes": 1}, ["retention.ms", "retention.bytes"]),
        ({"cleanup.policy": "compact"}, {}, ["cleanup.policy", "retention.ms"]),
        ({}, {"cleanup.policy": "compact"}, ["cleanup.policy"]),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact", "retention.ms": 1}, []),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact", "delete.retention.ms": 1}, ["delete.retention.ms"]),
    ],
)
def test_settings_that_keep_less(ours: dict[str, Any], theirs: dict[str, Any], stricter: list[str]) -> None:
    assert stricter_settings(LogConfig.from_properties(ours), LogConfig.from_properties(theirs)) == stricter


def test_a_retention_that_nobody_set(tmp_path: Path) -> None:
    with LogManager(tmp_path / "data", ManualClock(NOW_MS)) as manager:
        for name, properties in (("set", {"retention.ms": 5}), ("unset", {}), ("compacted", {"cleanup.policy": "compact"})):
            manager.create_topic(name, 1, properties)
    asked = topics_to_hand(tmp_path / "data")
    assert {one.name: one.is_retention_default for one in asked} == {"set": False, "unset": True, "compacted": False}
    asked = topics_to_hand(tmp_path / "data", {"log.retention.hours": 1})
    assert {one.name: one.config.retention_ms for one in asked} == {"set": 5, "unset": 3_600_000, "compacted": 3_600_000}
    assert not any(one.is_retention_default for one in asked)


def test_what_kafka_would_delete(source: Path) -> None:
    now_ms = NOW_MS + 86_400_000
    assert deletions(source, "t", LogConfig(), now_ms) == []
    found = deletions(source, "t", LogConfig(retention_ms=1000), now_ms)
    with LogManager(source, ManualClock(NOW_MS)) as manager:
        ends = {key.partition: log.log_end_offset for key, log in manager.logs.items() if log.log_end_offset}
        starts = {key.partition: log.log_start_offset for key, log in manager.logs.items()}
    assert {one.partition: one.offsets for one in found} == {number: end - starts[number] for number, end in ends.items()}
    assert {one.reason for one in found} == {"retention.ms"}


def test_open_transactions_are_told(source: Path) -> None:
    with LogManager(source, ManualClock(NOW_MS)) as manager:
        producer = Producer(2**41, 0, 0)
        manager.log("t", 1).append_as_leader(batch(producer=producer, transactional=True), 0)
    (one,) = topics_to_hand(source)
    assert one.open_transactions == [(1, 1)]


def test_a_folder_that_was_not_closed_is_recovered(source: Path, target: Path, tmp_path: Path) -> None:
    assert not recover(source, ManualClock(NOW_MS))
    (source / ".kafka_cleanshutdown").unlink()
    for path in (source / "t-0").glob("*index"):
        path.write_bytes(bytes(240))
    last = max((source / "t-0").glob("*.log"))
    with last.open("ab") as file:
        file.write(b"torn")
    with pytest.raises(InvalidArgumentError, match="not shut down cleanly"):
        topics_to_hand(source)
    (source / "recovery-point-offset-checkpoint").unlink()
    assert recover(source, ManualClock(NOW_MS))
    assert topics_to_hand(source)[0].partitions == 2
    place(source, target, IDS)
    check_handed_over(source, target)
    with pytest.raises(DataDirNotFoundError):
        recover(tmp_path / "nowhere", ManualClock(NOW_MS))
    assert not (tmp_path / "nowhere").exists()
