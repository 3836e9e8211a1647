"""`process_folders.place`: partitions keep their records, and their checkpoints, wherever they move, also over crashes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.storage.crash_states import CrashStates
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.model import TopicPartition
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.reader.tiered.tiered_log_dir import open_log_dir
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.folder.process_folders import CONTROLLER_ID, divided_folder, place, process_folder
from tidelog.storage.log_manager import LogManager

TOPICS = {"orders": 4, "payments": 2, "one": 1}


def written(folder: Path, clock: ManualClock) -> dict[TopicPartition, int]:
    """Make a folder that one broker has served; return the end offset of each partition."""
    ends = {}
    with LogManager(folder, clock) as manager:
        for name, partitions in TOPICS.items():
            manager.create_topic(name, partitions, {"retention.ms": 1000})
            for number in range(partitions):
                for value in range(number + 1):
                    manager.log(name, number).append_as_leader(build_batch_v2([Record(0, 1, 0, b"k", b"%d" % value)]), 0)
                ends[TopicPartition(name, number)] = number + 1
    return ends


def places(folder: Path) -> dict[TopicPartition, int]:
    """Return the broker of each partition, by the metadata, after comparing it with the folders."""
    log = read_metadata_log(folder)
    assert log is not None
    found = places_in_metadata(folder)
    for (name, number), broker in found.items():
        record = log.image.partition(name, number)
        owner = read_meta_properties(process_folder(folder, broker))
        assert record is not None and owner is not None
        assert record.isr == [broker] and record.directories == [owner.directory_uuid]
        assert (process_folder(folder, broker) / names.log_dir_name(name, number)).is_dir()
    return found


def places_in_metadata(folder: Path) -> dict[TopicPartition, int]:
    log = read_metadata_log(folder)
    assert log is not None
    return {
        TopicPartition(name, number): partition.replicas[0]
        for name, topic in log.image.topics.items()
        for number, partition in topic.partitions.items()
    }


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files but the lock."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def check(folder: Path, ends: dict[TopicPartition, int], count: int) -> None:
    found = places(folder)
    assert found.keys() == ends.keys() and set(found.values()) <= set(range(1, count + 1))
    for key, end in ends.items():
        points = read_offset_checkpoint(process_folder(folder, found[key]) / names.RECOVERY_POINT_CHECKPOINT)
        assert points[key] == end
        with open_log_dir(folder).log(*key) as log:
            assert log.log_end_offset == end


def test_shares_are_equal_when_brokers_come(tmp_path: Path) -> None:
    clock = ManualClock()
    ends = written(tmp_path, clock)
    for count in (2, 4, 3, 7, 1):
        place(tmp_path, clock, count)
        check(tmp_path, ends, count)
        counts = Counter(places(tmp_path).values())
        if count > 1:
            assert max(counts.values()) - min(counts.values()) <= 1
    owner = read_meta_properties(tmp_path)
    assert owner is not None and owner.node_id == CONTROLLER_ID
    before = places(tmp_path)
    place(tmp_path, clock, 1)
    assert places(tmp_path) == before


@pytest.mark.parametrize(("before", "count"), [(0, 2), (2, 3), (3, 1)])
def test_a_crash_loses_nothing(before: int, count: int, tmp_path: Path) -> None:
    """Whatever a kill leaves, the next start has all partitions, also with another number of brokers."""
    clock = ManualClock()
    folder = tmp_path / "data"
    ends = written(folder, clock)
    if before:
        place(folder, clock, before)
    with CrashStates(folder, tmp_path / "states") as states:
        place(folder, clock, count)
    assert len(states.folders) > 10
    for number, state in enumerate(states.folders):
        after = 1 + number % 3
        place(state, clock, after)
        check(state, ends, after)
        shutil.rmtree(state)


def test_an_unclean_end_is_remembered(tmp_path: Path) -> None:
    """A broker that was killed passes that on with its partitions: their new brokers recover them."""
    clock = ManualClock()
    written(tmp_path, clock)
    place(tmp_path, clock, 2)
    assert all((process_folder(tmp_path, one) / names.CLEAN_SHUTDOWN_FILE).exists() for one in (1, 2))
    (process_folder(tmp_path, 2) / names.CLEAN_SHUTDOWN_FILE).unlink()
    place(tmp_path, clock, 1)
    assert not (process_folder(tmp_path, 1) / names.CLEAN_SHUTDOWN_FILE).exists()


def test_a_full_disk(tmp_path: Path) -> None:
    clock = ManualClock()
    ends = written(tmp_path, clock)
    with patch.object(Path, "rename", side_effect=OSError(28, "No space left on device")), pytest.raises(StorageError):
        place(tmp_path, clock, 2)
    place(tmp_path, clock, 2)
    check(tmp_path, ends, 2)


def test_what_cannot_be_divided(tmp_path: Path) -> None:
    clock = ManualClock()
    written(tmp_path / "running", clock)
    with LogManager(tmp_path / "running", clock), pytest.raises(StorageError, match="is using this folder"):
        place(tmp_path / "running", clock, 2)
    written(tmp_path / "backup", clock)
    shutil.rmtree(tmp_path / "backup" / "__cluster_metadata-0")
    for _ in ("with an owner", "without"):
        before = contents(tmp_path / "backup")
        with pytest.raises(InvalidArgumentError, match="cannot be divided among"):
            place(tmp_path / "backup", clock, 2)
        assert contents(tmp_path / "backup") == before
        (tmp_path / "backup" / "meta.properties").unlink(missing_ok=True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-a-friend.txt").write_text("hello")
    with pytest.raises(StorageError, match="not a data folder"):
        place(tmp_path / "letters", clock, 2)
    assert not (tmp_path / "letters" / ".lock").exists()
    place(tmp_path / "mine", clock, 1)
    with pytest.raises(InvalidArgumentError, match="a different node"):
        LogManager(tmp_path / "mine", clock, properties={"node.id": 1}).startup()


@pytest.mark.parametrize("lost", ["process2", "meta.properties", "__cluster_metadata-0"])
def test_a_missing_part_is_an_error(lost: str, tmp_path: Path) -> None:
    """Otherwise partitions would be empty, or a controller without topics would govern the brokers."""
    clock = ManualClock()
    folder = tmp_path / "data"
    ends = written(folder, clock)
    place(folder, clock, 2)
    (folder / lost).rename(tmp_path / lost)
    for count in (1, 2, 3):
        before = contents(folder)
        with pytest.raises(InvalidArgumentError, match=r"missing.* restore") as raised:
            place(folder, clock, count)
        assert lost in str(raised.value)
        assert contents(folder) == before
    (tmp_path / lost).rename(folder / lost)
    place(folder, clock, 2)
    check(folder, ends, 2)


def test_an_empty_folder_gives_up_a_brokers_records(tmp_path: Path) -> None:
    clock = ManualClock()
    written(tmp_path, clock)
    place(tmp_path, clock, 2)
    shutil.rmtree(tmp_path / "process2")
    (tmp_path / "process2").mkdir()
    place(tmp_path, clock, 2)
    assert set(places_in_metadata(tmp_path).values()) == {1, 2}


def test_a_brokers_folder_knows_its_whole(tmp_path: Path) -> None:
    clock = ManualClock()
    place(tmp_path / "data", clock, 2)
    written(tmp_path / "alone" / "process1", clock)
    assert divided_folder(tmp_path / "data" / "process2") == tmp_path / "data"
    assert divided_folder(tmp_path / "data") is None
    assert divided_folder(tmp_path / "alone" / "process1") is None
