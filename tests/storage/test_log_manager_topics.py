"""Topics are created, enlarged, altered, adopted and deleted; whole, whatever comes in between."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.crash_states import CrashStates
from tests.storage.known_topics import forget, write_old_file
from tests.storage.managers import QUIET, die, files, fill, managed, started
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tidelog.clock import ManualClock
from tidelog.errors import (
    InvalidArgumentError,
    LogOfflineError,
    StorageError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.partition_metadata import read_topic_id, write_topic_id
from tidelog.reader.metadata_log import ASIDE_DIR, METADATA_DIR
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata.metadata_store import Change
from tidelog.storage.partitions import LOGS_A_STEP

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""What a topic has that was found, once it is known."""


def partition_folders(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_dir() and path.name not in (METADATA_DIR, ASIDE_DIR)}


class TestCreate:
    def test_a_topic(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            topic = manager.create_topic("t", 2, {"retention.ms": 5, "preallocate": False, "log.segment.bytes": 1000})
            assert topic.properties == {"retention.ms": "5", "preallocate": "false", "segment.bytes": "1000"}
            assert read_topics(tmp_path) == manager.topics() == {"t": topic}
            assert partition_folders(tmp_path) == {"t-0", "t-1"}
            assert manager.is_configuration_known("t")
            log = manager.log("t", 1)
            assert (log.config.retention_ms, log.config.segment_bytes, log.topic_id) == (5, 1000, topic.topic_id)
            log.append_as_leader(batch(), 0)
            assert read_topic_id(tmp_path / "t-1" / "partition.metadata") == topic.topic_id
        assert read_topic_id(tmp_path / "t-0" / "partition.metadata") == topic.topic_id

    def test_defaults_of_the_folder(self, tmp_path: Path) -> None:
        with managed(tmp_path, log_retention_hours=2, **{"segment.bytes": 4000}) as manager:
            manager.create_topic("a", 1)
            manager.create_topic("b", 1, {"retention.ms": 7})
            assert (manager.log("a", 0).config.retention_ms, manager.log("b", 0).config.retention_ms) == (7_200_000, 7)
            assert manager.log("b", 0).config.segment_bytes == 4000
            assert read_topics(tmp_path)["a"].properties == {}

    @pytest.mark.parametrize(
        ("name", "partitions", "properties"),
        [
            ("", 1, {}),
            ("a/b", 1, {}),
            ("..", 1, {}),
            ("x" * 250, 1, {}),
            ("__cluster_metadata", 1, {}),
            ("t", 0, {}),
            ("t", 2**31, {}),
            ("t", 1, {"retention.ms": "soon"}),
            ("t", 1, {"no.such.property": 1}),
            ("my.topic", 1, {}),
        ],
    )
    def test_what_kafka_refuses(self, tmp_path: Path, name: str, partitions: int, properties: dict[str, Any]) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("my_topic", 1)
            before = files(tmp_path), read_topics(tmp_path)
            with pytest.raises(InvalidArgumentError):
                manager.create_topic(name, partitions, properties)
            assert before == (files(tmp_path), read_topics(tmp_path))

    def test_twice(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            with pytest.raises(TopicExistsError):
                manager.create_topic("t", 2)

    def test_what_lies_in_the_way_is_not_touched(self, tmp_path: Path) -> None:
        """A folder that came while the manager runs; an import, a careless copy."""
        with managed(tmp_path) as manager:
            (tmp_path / "t-1").mkdir()
            (tmp_path / "t-1" / "precious").write_text("")
            with pytest.raises(StorageError, match="File exists"):
                manager.create_topic("t", 3)
            assert partition_folders(tmp_path) == {"t-1"}
            assert files(tmp_path / "t-1") == {"precious"}
            assert (manager.topics(), manager.partitions(), read_topics(tmp_path)) == ({}, [], {})
            manager.create_topic("u", 3)

    @pytest.mark.parametrize("call", ["mkdir", "pwrite", "fsync", "open"])
    def test_refused_by_the_disk_at_any_moment(self, tmp_path: Path, call: str) -> None:
        """Nothing is left behind, and nothing that was there before is harmed."""
        refused = 0
        for n in range(1000):
            folder = tmp_path / str(n)
            with managed(folder) as manager:
                manager.create_topic("before", 1)
                before = manager.topics()
                with pytest.MonkeyPatch.context() as patch:
                    is_refused = refuse_nth(patch, call, n)
                    try:
                        manager.create_topic("t", 3)
                    except StorageError:
                        refused += 1
                if not is_refused():
                    assert manager.topics().keys() == {"before", "t"}
                    break
                assert manager.topics() == before
                assert manager.partitions() == [("before", 0)]
                assert read_topics(folder) == before
                assert partition_folders(folder) == {"before-0"}
                manager.create_topic("t", 2)
            with managed(folder) as manager:
                assert manager.partitions() == [("before", 0), ("t", 0), ("t", 1)]
        assert refused >= 1

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        """All of it is there after the next start, or nothing."""
        manager = started(tmp_path / "data")
        manager.create_topic("before", 1)
        with CrashStates(tmp_path / "data", tmp_path / "states") as states:
            manager.create_topic("t", 3, {"retention.ms": 77})
        die(manager)
        seen = set()
        for folder in states.folders:
            with managed(folder) as manager:
                there = manager.topics().keys() == {"before", "t"}
                seen.add(there)
                assert partition_folders(folder) == ({"before-0", "t-0", "t-1", "t-2"} if there else {"before-0"})
                if there:
                    fill(manager.log("t", 2), 3)
                    assert manager.log("t", 2).config.retention_ms == 77
                else:
                    manager.create_topic("t", 1)
        assert seen == {True, False}


class TestAddPartitions:
    def test_more(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            before = manager.create_topic("t", 1)
            fill(manager.log("t", 0), 2)
            after = manager.add_partitions("t", 3)
            assert (after.partitions, after.topic_id) == (3, before.topic_id)
            fill(manager.log("t", 2), 1)
            for wrong in (3, 2, 0, 2**31):
                with pytest.raises(InvalidArgumentError):
                    manager.add_partitions("t", wrong)
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.add_partitions("u", 3)
        with managed(tmp_path) as manager:
            assert [offsets(manager.log("t", p)) for p in range(3)] == [[0, 1], [], [0]]

    def test_refused_by_the_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with managed(tmp_path) as manager:
            topic = manager.create_topic("t", 1)
            with pytest.MonkeyPatch.context() as patch:
                refuse_nth(patch, "mkdir", 1)
                with pytest.raises(StorageError):
                    manager.add_partitions("t", 4)
            assert manager.topics() == read_topics(tmp_path) == {"t": topic}
            assert partition_folders(tmp_path) == {"t-0"}

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        manager = started(tmp_path / "data")
        manager.create_topic("t", 1)
        with CrashStates(tmp_path / "data", tmp_path / "states") as states:
            manager.add_partitions("t", 3)
        die(manager)
        for folder in states.folders:
            with managed(folder) as manager:
                assert len(manager.partitions()) == manager.topics()["t"].partitions


class TestDelete:
    def test_a_topic(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 2, {"file.delete.delay.ms": 1000})
            manager.create_topic("u", 1)
            fill(manager.log("t", 0), 5)
            log = manager.log("t", 0)
            manager.delete_topic("t")
            assert (list(manager.topics()), manager.partitions()) == (["u"], [("u", 0)])
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.log("t", 0)
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.delete_topic("t")
            with pytest.raises(LogOfflineError):
                log.append_as_leader(batch(), 0)
            assert len([name for name in partition_folders(tmp_path) if name.endswith("-delete")]) == 2
            manager.checkpoint_recovery_points()
            manager.checkpoint_high_watermarks()
            for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
                assert list(read_offset_checkpoint(tmp_path / name)) == [("u", 0)]
            clock.advance(1001)
            manager.tick()
            assert partition_folders(tmp_path) == {"u-0"}

    def test_file_references_after_async_delete(self, tmp_path: Path) -> None:
        """LogManagerTest.testFileReferencesAfterAsyncDelete: a deleted log's files are those in the renamed folder."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, **QUIET) as manager:
            manager.create_topic("t", 1)
            log = manager.log("t", 0)
            fill(log, 3)
            name = log.segments.active.log.path.name
            manager.delete_topic("t")
            (going,) = partition_folders(tmp_path)
            assert going.endswith("-delete")
            assert (tmp_path / going / name).exists()
            with pytest.raises(LogOfflineError):
                log.read(0, 100)
            clock.advance(60_001)
            manager.tick()
            assert partition_folders(tmp_path) == set()

    def test_create_and_delete_overly_long_topic(self, tmp_path: Path) -> None:
        """LogManagerTest.testCreateAndDeleteOverlyLongTopic, within what topic names may be."""
        name = "n" * 249
        with managed(tmp_path) as manager:
            manager.create_topic(name, 1)
            manager.delete_topic(name)
            (going,) = partition_folders(tmp_path)
            assert (len(going), going.endswith("-delete")) == (255, True)
        assert partition_folders(tmp_path) == set()

    def test_and_create_again(self, tmp_path: Path) -> None:
        """The new topic begins at 0, whatever the old one's offsets were."""
        with managed(tmp_path) as manager:
            first = manager.create_topic("t", 1)
            fill(manager.log("t", 0), 10)
            manager.log("t", 0).delete_records(5)
            manager.checkpoint_log_start_offsets()
            manager.delete_topic("t")
            second = manager.create_topic("t", 1)
            log = manager.log("t", 0)
            assert first.topic_id != second.topic_id
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
            fill(log, 3)
        with managed(tmp_path) as manager:
            assert offsets(manager.log("t", 0)) == [0, 1, 2]

    def test_of_unknown_configuration(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2)
        forget(tmp_path)
        with managed(tmp_path) as manager:
            manager.delete_topic("t")
            assert (manager.partitions(), read_topics(tmp_path)) == ([], {})

    def test_offline_partitions_as_well(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2)
        write_topic_id(tmp_path / "t-0" / "partition.metadata", uuid.UUID(int=5))
        with managed(tmp_path) as manager:
            manager.log("t", 1).go_offline("test", OSError("broken"))
            assert len(manager.offline_partitions()) == 2
            manager.delete_topic("t")
            assert (manager.partitions(), manager.offline_partitions()) == ([], {})
        assert partition_folders(tmp_path) == set()

    def test_a_folder_that_is_gone_already(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2)
            shutil.rmtree(tmp_path / "t-0")
            manager.delete_topic("t")
            assert manager.partitions() == []

    def test_refused_by_the_disk(self, tmp_path: Path) -> None:
        """It stays a deletion, says so, and is gone on with by the next try, or the next start."""
        for by_restart in (False, True):
            folder = tmp_path / str(by_restart)
            manager = started(folder)
            manager.create_topic("t", 3)
            fill(manager.log("t", 1), 4)
            with pytest.MonkeyPatch.context() as patch:
                refuse_nth(patch, "rename", 1)
                with pytest.raises(StorageError, match="'t' was not deleted: 1 of its partitions"):
                    manager.delete_topic("t")
            assert manager.topics() == {}
            assert manager.partitions() == [("t", 1)]
            assert "being deleted" in manager.offline_partitions()["t", 1]
            with pytest.raises(LogOfflineError, match="being deleted"):
                manager.log("t", 1)
            with pytest.raises(TopicExistsError):
                manager.create_topic("t", 1)
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.alter_config("t", {})
            with pytest.raises(InvalidArgumentError, match="being deleted"):
                manager.bring_online("t", 1)
            if by_restart:
                assert not manager.shutdown()
                manager = started(folder)
            else:
                manager.delete_topic("t")
            assert (manager.partitions(), read_topics(folder)) == ([], {})
            manager.shutdown()
            assert partition_folders(folder) == set()

    def test_a_start_that_cannot_go_on_with_it(self, tmp_path: Path) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 2)
        topic = manager.topics()["t"]
        manager.shutdown()
        write_old_file(tmp_path, {"t": topic}, deleting="t")
        with pytest.MonkeyPatch.context() as patch:
            refuse_nth(patch, "rename", 0)
            manager = started(tmp_path)
        assert len(manager.offline_partitions()) == 1
        manager.delete_topic("t")
        assert read_topics(tmp_path) == {}
        manager.shutdown()

    @pytest.mark.parametrize("is_known", [True, False])
    def test_killed_at_any_moment(self, tmp_path: Path, is_known: bool) -> None:
        """All of it is there after the next start, with its records, or nothing."""
        manager = started(tmp_path / "data")
        manager.create_topic("t", 3)
        for partition in range(3):
            fill(manager.log("t", partition), 2)
        if not is_known:
            manager.shutdown()
            forget(tmp_path / "data")
            manager = started(tmp_path / "data")
        with CrashStates(tmp_path / "data", tmp_path / "states") as states:
            manager.delete_topic("t")
        die(manager)
        seen = set()
        for folder in states.folders:
            with managed(folder) as manager:
                seen.add(len(manager.partitions()))
                assert [offsets(manager.log(*key)) for key in manager.partitions()] == [[0, 1]] * len(manager.partitions())
                assert set(manager.topics()) == {"t"} & {
                    key.topic for key in manager.partitions() if is_known or manager.topics()
                }
                assert is_known or all(topic.properties == KEPT for topic in manager.topics().values())
            assert partition_folders(folder) in ({"t-0", "t-1", "t-2"}, set())
        assert seen == {0, 3}


class TestAlter:
    def test_topic_config_change_updates_log_config(self, tmp_path: Path) -> None:
        """LogManagerTest.testTopicConfigChangeUpdatesLogConfig: properties that are not named any more are the defaults'."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2, {"retention.ms": 5, "segment.ms": 6})
            manager.create_topic("u", 1, {"retention.ms": 5})
            manager.alter_config("t", {"segment.ms": "7"})
            for partition in range(2):
                config = manager.log("t", partition).config
                assert (config.segment_ms, config.retention_ms) == (7, 604_800_000)
            assert manager.log("u", 0).config.retention_ms == 5
        with managed(tmp_path) as manager:
            assert manager.topics()["t"].properties == {"segment.ms": "7"}
            assert manager.log("t", 1).config.segment_ms == 7

    def test_what_is_wrong_changes_nothing(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            topic = manager.create_topic("t", 1, {"retention.ms": 5})
            with pytest.raises(InvalidArgumentError):
                manager.alter_config("t", {"retention.ms": "soon"})
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.alter_config("u", {})
            assert read_topics(tmp_path) == manager.topics() == {"t": topic}
            assert manager.log("t", 0).config.retention_ms == 5

    @pytest.mark.parametrize("call", ["pwrite", "fsync"])
    def test_refused_by_the_disk(self, tmp_path: Path, call: str) -> None:
        with managed(tmp_path) as manager:
            topic = manager.create_topic("t", 1, {"retention.ms": 5})
            with pytest.MonkeyPatch.context() as patch:
                refuse_nth(patch, call, 0)
                with pytest.raises(StorageError):
                    manager.alter_config("t", {"retention.ms": 6})
            assert read_topics(tmp_path) == manager.topics() == {"t": topic}
            assert manager.log("t", 0).config.retention_ms == 5

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        manager = started(tmp_path / "data")
        manager.create_topic("t", 1, {"retention.ms": 5})
        with CrashStates(tmp_path / "data", tmp_path / "states") as states:
            manager.alter_config("t", {"retention.ms": 6})
        die(manager)
        seen = set()
        for folder in states.folders:
            with managed(folder) as manager:
                seen.add(manager.log("t", 0).config.retention_ms)
        assert seen == {5, 6}


class TestAdopt:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        with managed(tmp_path / "data") as manager:
            manager.create_topic("t", 3, {"segment.bytes": 500})
            fill(manager.log("t", 1), 20)
        forget(tmp_path / "data")
        return tmp_path / "data"

    def test_a_topic(self, folder: Path) -> None:
        with managed(folder) as manager:
            log = manager.log("t", 1)
            topic_id = log.topic_id
            assert (manager.is_configuration_known("t"), manager.topics()) == (False, {})
            topic = manager.adopt_topic("t", {"retention.bytes": 0})
            assert (topic.topic_id, topic.partitions) == (topic_id, 3)
            assert manager.delete_old_segments() > 0
            with pytest.raises(InvalidArgumentError):
                manager.adopt_topic("t")
            with pytest.raises(InvalidArgumentError):
                manager.adopt_topic("u")
        with managed(folder) as manager:
            assert manager.is_configuration_known("t")

    def test_without_ids(self, folder: Path) -> None:
        """A folder from before Kafka 2.8."""
        for path in folder.glob("*/partition.metadata"):
            path.unlink()
        with managed(folder) as manager:
            topic = manager.adopt_topic("t")
            assert manager.log("t", 0).topic_id == topic.topic_id
        assert read_topic_id(folder / "t-2" / "partition.metadata") == topic.topic_id

    def test_what_is_missing_is_made(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        shutil.rmtree(folder / "t-0")
        with managed(folder) as manager:
            manager.adopt_topic("t")
            assert manager.partitions() == [("t", 0), ("t", 1), ("t", 2)]
        assert "t-0 is missing: creating it as an empty partition" in caplog.text

    def test_partitions_of_two_topics(self, folder: Path) -> None:
        write_topic_id(folder / "t-0" / "partition.metadata", uuid.UUID(int=5))
        with managed(folder) as manager:
            with pytest.raises(InvalidArgumentError, match="different topics with the same name"):
                manager.adopt_topic("t")
            assert (manager.topics(), read_topics(folder)) == ({}, {})


def test_a_missing_partition_that_cannot_be_made_is_offline(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.create_topic("t", 2)
        fill(manager.log("t", 1), 1)
    shutil.rmtree(tmp_path / "t-0")
    (tmp_path / "t-0").write_text("in the way")
    with managed(tmp_path) as manager:
        assert list(manager.offline_partitions()) == [("t", 0)]
        assert offsets(manager.log("t", 1)) == [0]
        (tmp_path / "t-0").unlink()
        (tmp_path / "t-0").mkdir()
        fill(manager.bring_online("t", 0), 1)
        assert manager.offline_partitions() == {}


def test_checkpoints_of_an_old_partition_are_not_a_new_ones(tmp_path: Path) -> None:
    """A recovery point that is too high would hide from a recovery what a power failure has torn."""
    with managed(tmp_path) as manager:
        manager.create_topic("t", 2)
        for partition in range(2):
            fill(manager.log("t", partition), 100)
    shutil.rmtree(tmp_path / "t-1")
    manager = started(tmp_path)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offset_checkpoint(tmp_path / name) == {("t", 0): 100, ("t", 1): 0}
    manager.shutdown()
    forget(tmp_path)
    shutil.rmtree(tmp_path / "t-0")
    shutil.rmtree(tmp_path / "t-1")
    manager = started(tmp_path)
    manager.create_topic("t", 1)
    assert read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint") == {}
    manager.shutdown()


def refuse_nth(patch: pytest.MonkeyPatch, call: str, n: int) -> Callable[[], bool]:
    """Have the n-th call (from 0) of an `os` function fail, as on a full disk; what is returned says whether it came to that."""
    original = getattr(os, call)
    count = 0

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        if call == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return original(*arguments, **keywords)
        count += 1
        if count == n + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
        return original(*arguments, **keywords)

    patch.setattr(os, call, refuse)
    return lambda: count > n


def test_what_has_changed_is_told(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.create_topic("other", 1)
        manager.create_topic("t", 1)
        assert manager.changed_topics == {"t", "other"}
        for change in (
            lambda: manager.add_partitions("t", 2),
            lambda: manager.alter_config("t", {"retention.ms": 5}),
            lambda: manager.log("t", 1).go_offline("append", OSError(errno.EIO, "Input/output error")),
            lambda: manager.bring_online("t", 1),
            lambda: manager.delete_topic("t"),
        ):
            manager.changed_topics.clear()
            change()
            assert manager.changed_topics == {"t"}
        assert (manager.topic("t"), manager.partitions_of("t")) == (None, [])
        assert manager.topic("other") == manager.topics()["other"]
        manager.changed_topics.clear()
        manager.log("other", 0).append_as_leader(batch(), 0)
        manager.tick()
        assert manager.changed_topics == set()


def test_two_clocks_apart(tmp_path: Path) -> None:
    """Jumps of the clock, both ways: nothing is done twice, nothing is forgotten."""
    clock = ManualClock(NOW_MS)
    with LogManager(tmp_path, clock, properties={"log.retention.check.interval.ms": 1000}) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 300, "retention.bytes": 0, "file.delete.delay.ms": 500})
        log = manager.log("t", 0)
        for jump_ms in (40_000, -3_600_000_000, 2_000, -500_000_000, 1_500, 5_000_000_000, -5_000_000_000, 1_100):
            fill(log, 10)
            clock.advance(jump_ms)
            manager.tick()
            clock.advance(1_001)
            manager.tick()
            assert len(log.segments) <= 2
            clock.advance(501)
            manager.tick()
            clock.advance(501)
            manager.tick()
            assert not [name for name in files(tmp_path / "t-0") if name.endswith(".deleted")]


def test_partitions_are_there_at_the_same_moment_and_in_steps(tmp_path: Path) -> None:
    """However many: each step takes up so few of them, and none is there before the last one."""
    manager = LogManager(tmp_path, ManualClock(NOW_MS))
    manager.startup()
    steps, turns = manager.steps.creation("many", 3 * LOGS_A_STEP, {}), 0
    try:
        step = steps.send(None)
        while True:
            assert manager.partitions_of("many") == []
            turns += step is None
            if isinstance(step, Change):
                manager.metadata.settle(step)
            step = steps.send(None if step is None or isinstance(step, Change) else step())
    except StopIteration:
        assert len(manager.partitions_of("many")) == 3 * LOGS_A_STEP
    assert turns >= 3
    manager.shutdown()
