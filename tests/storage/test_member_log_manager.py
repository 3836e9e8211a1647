"""The folder of a cluster's member: replicas come and go with the metadata, and nothing else is lost or made."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from tests.storage.crash_states import CrashStates
from tests.storage.managers import QUIET, die, fill
from tests.storage.members import CLUSTER_ID, NODE, OTHERS, Cluster, follow, formatted, member
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, LogOfflineError
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.model import TopicPartition
from tidelog.storage.folder.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from tidelog.storage.log_manager import LogManager
from tidelog.storage.member_log_manager import MemberLogManager
from tidelog.storage.steps import run_steps

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return formatted(tmp_path / "data")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def folders(directory: Path, suffix: str = "") -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and path.name.endswith(suffix))


class TestOpening:
    @pytest.mark.parametrize(
        ("owner", "message"),
        [
            (None, "not formatted"),
            (MetaProperties(NODE, None, None), "not formatted"),
            (MetaProperties(NODE + 1, CLUSTER_ID), "a different node"),
            (MetaProperties(NODE, "another"), "a different cluster"),
        ],
    )
    def test_a_folder_that_is_not_this_members(self, tmp_path: Path, owner: MetaProperties | None, message: str) -> None:
        if owner is not None:
            write_meta_properties(tmp_path, owner)
        before = {path.name for path in tmp_path.iterdir()}
        properties = {"node.id": NODE, "cluster.id": CLUSTER_ID}
        manager = MemberLogManager(tmp_path, ManualClock(NOW_MS), properties=properties)
        with pytest.raises(InvalidArgumentError, match=message):
            manager.open()
        assert {path.name for path in tmp_path.iterdir()} - {".lock"} == before
        assert not is_locked(tmp_path)

    def test_a_missing_folder_is_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgumentError, match="no such folder"):
            MemberLogManager(tmp_path / "data", ManualClock(NOW_MS)).open()
        assert not (tmp_path / "data").exists()

    def test_what_the_registration_needs(self, directory: Path, cluster: Cluster) -> None:
        manager = MemberLogManager(directory, ManualClock(NOW_MS))
        manager.open()
        assert (manager.owner.node_id, manager.owner.cluster_id, manager.previous_broker_epoch) == (NODE, CLUSTER_ID, -1)
        manager.startup(cluster)
        assert manager.shutdown(broker_epoch=17)
        again = MemberLogManager(directory, ManualClock(NOW_MS))
        again.open()
        assert again.previous_broker_epoch == 17
        assert (directory / CLEAN_SHUTDOWN_FILE).exists()  # Nothing has happened yet.
        assert again.shutdown() and not is_locked(directory)  # It is as it was.
        assert (directory / CLEAN_SHUTDOWN_FILE).exists()

    def test_a_folder_of_before_3_7_gets_an_id(self, tmp_path: Path) -> None:
        directory = formatted(tmp_path, directory_id=None)
        manager = MemberLogManager(directory, ManualClock(NOW_MS))
        manager.open()
        assert manager.owner.directory_uuid and read_meta_properties(directory) == manager.owner
        manager.abort()

    def test_a_folder_of_version_0(self, tmp_path: Path) -> None:
        """Of a broker that was in a ZooKeeper cluster."""
        text = f"#Fri Nov 27 2026\nversion=0\nbroker.id={NODE}\ncluster.id={CLUSTER_ID[:4]}\\\n  {CLUSTER_ID[4:]}\nto.come=1\n"
        (tmp_path / "meta.properties").write_text(text)
        manager = MemberLogManager(tmp_path, ManualClock(NOW_MS), properties={"node.id": NODE, "cluster.id": CLUSTER_ID})
        manager.open()
        assert (manager.owner.version, manager.owner.others) == (1, {"to.come": "1"}) and manager.owner.directory_uuid
        assert read_meta_properties(tmp_path) == manager.owner
        manager.abort()

    def test_it_is_not_loaded_without_the_metadata(self, directory: Path) -> None:
        with pytest.raises(InvalidArgumentError, match="from its cluster's metadata"):
            MemberLogManager(directory, ManualClock(NOW_MS)).startup()


class TestReplicas:
    def test_made_loaded_and_deleted(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", 3)
        cluster.assign("a", 1, OTHERS)
        clock = ManualClock(NOW_MS)
        manager = member(directory, cluster, clock)
        assert manager.partitions() == [A, TopicPartition("a", 2)] and folders(directory) == ["a-0", "a-2"]
        fill(manager.log("a", 0), 5)
        assert manager.shutdown()
        manager = member(directory, cluster, clock)
        assert manager.had_clean_shutdown and offsets(manager.log("a", 0)) == [0, 1, 2, 3, 4]
        cluster.delete("a")
        follow(manager, cluster)
        assert not manager.partitions() and len(folders(directory, "-delete")) == 2
        for name in CHECKPOINTS:
            assert read_offset_checkpoint(directory / name) == {}
        clock.advance(60_001)
        manager.tick()
        assert not folders(directory)
        assert manager.shutdown()

    def test_nothing_is_written_to_the_metadata_log(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        manager.shutdown()
        assert not list(directory.glob("__cluster_metadata*"))

    def test_creation_is_idempotent(self, directory: Path, cluster: Cluster) -> None:
        topic_id = cluster.create("a")
        manager = member(directory, cluster)
        log = manager.log("a", 0)
        assert run_steps(manager.replicas.creation(A, topic_id)) is log
        assert log.topic_id == topic_id
        manager.abort()

    def test_another_topic_of_the_name_replaces_it(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        fill(manager.log("a", 0), 5)
        manager.checkpoint_recovery_points()
        manager.checkpoint_high_watermarks()
        cluster.delete("a")
        topic_id = cluster.create("a")
        log = run_steps(manager.replicas.creation(A, topic_id))
        assert (log.topic_id, log.log_end_offset, log.high_watermark) == (topic_id, 0, 0)
        assert len(folders(directory, "-delete")) == 1
        assert read_offset_checkpoint(directory / CHECKPOINTS[0]) == {}
        manager.abort()

    def test_many_with_one_sync(self, directory: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        manager = member(directory, cluster)
        cluster.create("a", 40)
        synced: list[int] = []
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(fd) or fsync(fd))  # type: ignore[func-returns-value]
        follow(manager, cluster)
        assert len(synced) == 1 and len(manager.logs) == 40
        synced.clear()
        run_steps(manager.replicas.deletion(manager.partitions()))
        assert len(synced) == 1 and not manager.logs
        manager.abort()

    def test_one_that_cannot_be_made_keeps_no_other(self, directory: Path, cluster: Cluster) -> None:
        topic_id = cluster.create("a", 3)
        manager = MemberLogManager(directory, ManualClock(NOW_MS))
        manager.startup(cluster)
        (directory / "a-1").write_text("in the way")
        logs = run_steps(manager.replicas.creations(cluster.assigned()))
        assert sorted(key.partition for key in logs) == [0, 2] and "a-1" in str(manager.offline_partitions())
        with pytest.raises(LogOfflineError, match="File exists"):
            run_steps(manager.replicas.creation(TopicPartition("a", 1), topic_id))
        (directory / "a-1").unlink()
        assert run_steps(manager.replicas.creation(TopicPartition("a", 1), topic_id)).log_end_offset == 0
        assert not manager.offline_partitions()
        manager.abort()

    def test_a_deletion_that_the_disk_refuses_is_tried_again(
        self, directory: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.create("a", 2)
        manager = member(directory, cluster)
        cluster.delete("a")
        with monkeypatch.context() as patch:

            def refuse(path: Path, target: Path) -> None:
                raise PermissionError(13, "not allowed")

            patch.setattr(Path, "rename", refuse)
            with pytest.raises(OSError, match="2 replicas could not be deleted"):
                run_steps(manager.replicas.deletion(manager.partitions()))
            assert manager.unfinished_deletions() == ["a"]
        follow(manager, cluster)
        assert not manager.partitions() and not manager.unfinished_deletions()
        manager.abort()

    def test_topics_are_the_controllers_to_change(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        for change in (
            lambda: manager.create_topic("b", 1),
            lambda: manager.delete_topic("a"),
            lambda: manager.alter_config("a", {}),
            lambda: run_steps(manager.settings.change("", {"log.retention.ms": "5"})),
            manager.next_producer_id,
        ):
            with pytest.raises(InvalidArgumentError, match="controllers"):
                change()
        assert set(manager.topics()) == {"a"} and manager.image is cluster.image
        manager.abort()


class TestStrays:
    @pytest.mark.parametrize("how", ["deleted", "made again", "moved away", "fewer partitions"])
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_what_is_not_this_nodes_any_more(self, directory: Path, cluster: Cluster, how: str, is_clean: bool) -> None:
        cluster.create("a")
        cluster.create("b")
        manager = member(directory, cluster)
        for key in (A, B):
            fill(manager.log(*key), 5)
        if is_clean:
            assert manager.shutdown()
        else:
            manager.abort()
        before = (directory / "a-0" / "00000000000000000000.log").read_bytes()
        cluster.delete("a")
        if how == "made again":
            cluster.create("a")
        elif how == "moved away":
            cluster.create("a", 1, OTHERS)
        elif how == "fewer partitions":
            cluster.create("a", 0)
        manager = MemberLogManager(directory, ManualClock(NOW_MS), properties=QUIET)
        manager.startup(cluster)
        (stray,) = folders(directory, "-stray")
        assert stray.startswith("a-0.") and (directory / stray / "00000000000000000000.log").read_bytes() == before
        assert manager.partitions() == [B] and offsets(manager.log("b", 0)) == [0, 1, 2, 3, 4]
        follow(manager, cluster)
        if how == "made again":
            assert (manager.log("a", 0).log_end_offset, manager.log("a", 0).high_watermark) == (0, 0)
        assert manager.shutdown()
        assert set(read_offset_checkpoint(directory / CHECKPOINTS[0])) == set(cluster.assigned())
        # It stays, and nobody takes it for a partition.
        manager = member(directory, cluster)
        assert folders(directory, "-stray") == [stray] and set(manager.partitions()) == set(cluster.assigned())
        manager.abort()

    def test_one_that_does_not_say_whose_it_is(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        fill(manager.log("a", 0), 5)
        manager.abort()
        (directory / "a-0" / "partition.metadata").unlink()
        manager = member(directory, cluster)
        assert len(folders(directory, "-stray")) == 1 and manager.log("a", 0).log_end_offset == 0
        manager.abort()

    def test_an_empty_one_that_a_crash_left_is_taken(self, directory: Path, cluster: Cluster) -> None:
        topic_id = cluster.create("a", 2)
        member(directory, cluster).abort()
        assert read_topic_id(directory / "a-0" / "partition.metadata") is None
        (directory / "a-1" / "00000000000000000000.log").unlink()
        manager = member(directory, cluster)
        assert not folders(directory, "-stray")
        assert [log.topic_id for log in manager.logs.values()] == [topic_id, topic_id]
        manager.abort()

    def test_a_damaged_id_is_offline_and_stays(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        fill(manager.log("a", 0), 5)
        manager.abort()
        (directory / "a-0" / "partition.metadata").write_text("version: 9")
        manager = member(directory, cluster)
        assert list(manager.offline_partitions()) == [A] and folders(directory) == ["a-0"]
        manager.abort()

    def test_one_that_cannot_be_set_aside_is_not_served(
        self, directory: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.create("a")
        manager = member(directory, cluster)
        fill(manager.log("a", 0), 5)
        manager.abort()
        cluster.delete("a")
        cluster.create("a")
        with monkeypatch.context() as patch:

            def refuse(path: Path, target: Path) -> None:
                raise PermissionError(13, "not allowed")

            patch.setattr(Path, "rename", refuse)
            manager = member(directory, cluster)
            assert "set aside, but" in manager.offline_partitions()[A] and A not in manager.logs
            manager.abort()
        manager = member(directory, cluster)
        assert manager.log("a", 0).log_end_offset == 0 and len(folders(directory, "-stray")) == 1
        manager.abort()

    def test_what_kafka_calls_gone_goes_later(self, directory: Path, cluster: Cluster) -> None:
        clock = ManualClock(NOW_MS)
        (directory / f"a-0.{uuid.uuid4().hex}-delete").mkdir()
        manager = member(directory, cluster, clock)
        assert folders(directory, "-delete")
        clock.advance(60_001)
        manager.tick()
        assert not folders(directory)
        manager.abort()


class TestHighWatermarks:
    def test_they_are_the_checkpoints_never_the_ends(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", 2)
        manager = member(directory, cluster)
        for log in manager.logs.values():
            for _ in range(5):
                log.append_as_leader(batch(), 0)
        manager.log("a", 0).update_high_watermark(3)
        assert manager.shutdown()
        manager = member(directory, cluster)
        assert [log.high_watermark for log in manager.logs.values()] == [3, 0]
        manager.abort()
        (directory / CHECKPOINTS[1]).unlink()
        manager = member(directory, cluster)
        assert [log.high_watermark for log in manager.logs.values()] == [0, 0]
        assert [log.log_end_offset for log in manager.logs.values()] == [5, 5]
        manager.abort()

    def test_nothing_above_goes_by_retention_or_compaction(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", retention_ms="1", segment_bytes="1000")
        cluster.create("b", cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0")
        clock = ManualClock(NOW_MS)
        manager = member(directory, cluster, clock)
        for log in manager.logs.values():
            for i in range(40):
                log.append_as_leader(batch(timestamp=NOW_MS + i, key=b"key"), 0)
            log.update_high_watermark(20)
        clock.advance(600_000)
        manager.delete_old_segments()
        cleaner = manager.cleaner
        assert cleaner is not None
        while cleaner.clean_filthiest_log():
            pass
        kept = {key: offsets(log) for key, log in manager.logs.items()}
        assert kept[A][0] in range(1, 21) and kept[A][-1] == 39
        assert set(range(20, 40)) <= set(kept[B]) and len(kept[B]) < 40
        manager.abort()


class TestSettings:
    def test_of_topics_and_brokers(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", retention_ms="7")
        cluster.create("b")
        cluster.set_broker("", "log.retention.ms", "5")
        cluster.set_broker(str(NODE), "log.segment.bytes", "4000")
        cluster.set_broker("9", "log.segment.bytes", "9000")
        manager = member(directory, cluster, **{"message.timestamp.type": "LogAppendTime"})
        a, b = manager.log("a", 0).config, manager.log("b", 0).config
        assert (a.retention_ms, b.retention_ms, a.segment_bytes, b.message_timestamp_type) == (7, 5, 4000, "LogAppendTime")
        cluster.set(2, "a", "retention.ms", None)
        cluster.set_broker(str(NODE), "log.segment.bytes", "5000")
        run_steps(manager.replicas.reconfigure(["a"]))
        assert (manager.log("a", 0).config.retention_ms, manager.log("a", 0).config.segment_bytes) == (5, 4000)
        run_steps(manager.replicas.reconfigure(broker=True))
        assert [log.config.segment_bytes for log in manager.logs.values()] == [5000, 5000]
        manager.abort()

    def test_what_is_not_understood_is_skipped(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", **{"of.a.newer.kafka": "1", "retention.ms": "7", "segment.bytes": "many"})
        cluster.set(2, "a", "message.format.version", "0.10.0")
        manager = member(directory, cluster, log_message_format_version="0.10.0")
        config = manager.log("a", 0).config
        assert (config.retention_ms, config.segment_bytes, config.magic) == (7, 1 << 30, 2)
        manager.abort()

    def test_a_new_image_in_its_place(self, directory: Path, cluster: Cluster) -> None:
        cluster.create("a", retention_ms="7")
        manager = member(directory, cluster)
        other = Cluster()
        other.create("b", retention_ms="9")
        cluster.image = other.image
        follow(manager, other)
        assert manager.partitions() == [B] and manager.log("b", 0).config.retention_ms == 9
        manager.abort()


def test_a_compaction_starts_over_for_a_topic_made_again(directory: Path, cluster: Cluster) -> None:
    cluster.create("a", cleanup_policy="compact")
    manager = member(directory, cluster)
    fill(manager.log("a", 0), 9)
    assert manager.cleaner is not None
    manager.cleaner.manager.update_checkpoint(A, 8)
    assert manager.shutdown()
    cluster.delete("a")
    cluster.create("a", cleanup_policy="compact")
    manager = member(directory, cluster)
    assert manager.cleaner is not None and manager.cleaner.manager.checkpoints == {}
    manager.abort()


def test_a_member_kafkas_folder_and_a_brokers_own(directory: Path, cluster: Cluster, tmp_path: Path) -> None:
    """A topic that the single broker made is a stray here, and its bytes stay."""
    with LogManager(tmp_path / "own", ManualClock(NOW_MS)) as own:
        own.create_topic("a", 1)
        fill(own.log("a", 0), 3)
    shutil.copytree(tmp_path / "own" / "a-0", directory / "a-0")
    cluster.create("a")
    manager = member(directory, cluster)
    (stray,) = folders(directory, "-stray")
    assert (directory / stray / "partition.metadata").exists() and manager.log("a", 0).log_end_offset == 0
    manager.abort()


class TestCrashes:
    def test_creations_and_deletions_are_mended_by_the_next_start(self, tmp_path: Path, cluster: Cluster) -> None:
        directory = formatted(tmp_path / "data")
        cluster.create("kept")
        cluster.create("goes", 2)
        manager = member(directory, cluster, **QUIET)
        for log in manager.logs.values():
            fill(log, 3)
        manager.checkpoint_recovery_points()
        manager.checkpoint_high_watermarks()
        cluster.delete("goes")
        cluster.create("goes", 1)
        cluster.create("comes", 2)
        with CrashStates(directory, tmp_path / "states") as states:
            follow(manager, cluster)
        manager.abort()
        assert len(states.folders) > 5
        for state in states.folders:
            again = member(state, cluster, **QUIET)
            assert {key: log.topic_id for key, log in again.logs.items()} == cluster.assigned()
            assert offsets(again.log("kept", 0)) == [0, 1, 2] and again.log("kept", 0).high_watermark == 3
            assert [again.log("goes", 0).log_end_offset, again.log("comes", 1).log_end_offset] == [0, 0]
            again.log("goes", 0).append_as_leader(batch(), 0)
            assert again.shutdown()
            assert again.had_clean_shutdown is False

    def test_strays_are_set_aside_whatever_comes_in_between(self, tmp_path: Path, cluster: Cluster) -> None:
        directory = formatted(tmp_path / "data")
        cluster.create("kept")
        cluster.create("goes", 2)
        manager = member(directory, cluster, **QUIET)
        for log in manager.logs.values():
            fill(log, 3)
        assert manager.shutdown()
        cluster.delete("goes")
        cluster.create("goes", 2)
        with CrashStates(directory, tmp_path / "states") as states:
            manager = member(directory, cluster, **QUIET)
        manager.abort()
        for state in states.folders:
            again = member(state, cluster, **QUIET)
            assert {key: log.topic_id for key, log in again.logs.items()} == cluster.assigned()
            assert offsets(again.log("kept", 0)) == [0, 1, 2]
            assert len(folders(state, "-stray")) == 2
            again.abort()


class Replicas(RuleBasedStateMachine):
    """Any sequence of changes, restarts and kills: folders equal the metadata, and a replica that stays keeps its records."""

    root: Path
    number = 0

    def __init__(self) -> None:
        super().__init__()
        Replicas.number += 1
        self.directory = formatted(self.root / str(Replicas.number))
        self.cluster = Cluster()
        self.expected: dict[TopicPartition, tuple[uuid.UUID, int]] = {}
        self.manager: MemberLogManager | None = member(self.directory, self.cluster, **QUIET)

    names = st.sampled_from("ab")

    @rule(name=names, partitions=st.integers(1, 3), is_here=st.booleans())
    def creates(self, name: str, partitions: int, is_here: bool) -> None:
        if name not in self.cluster.image.topics:
            self.cluster.create(name, partitions, (NODE, *OTHERS) if is_here else OTHERS)

    @rule(name=names)
    def deletes(self, name: str) -> None:
        if name in self.cluster.image.topics:
            self.cluster.delete(name)

    @rule(name=names, number=st.integers(0, 2), is_here=st.booleans())
    def moves(self, name: str, number: int, is_here: bool) -> None:
        topic = self.cluster.image.topics.get(name)
        if topic is not None and number in topic.partitions:
            self.cluster.assign(name, number, (NODE, *OTHERS) if is_here else OTHERS)

    @rule()
    def follows(self) -> None:
        if self.manager is None:
            self.manager = member(self.directory, self.cluster, **QUIET)
        else:
            follow(self.manager, self.cluster)
        wanted = self.cluster.assigned()
        self.expected = {key: one for key, one in self.expected.items() if wanted.get(key) == one[0]}
        assert {key: log.topic_id for key, log in self.manager.logs.items()} == wanted
        assert not self.manager.offline_partitions()

    @rule(name=names, number=st.integers(0, 2), is_flushed=st.booleans())
    def appends(self, name: str, number: int, is_flushed: bool) -> None:
        key = TopicPartition(name, number)
        log = None if self.manager is None else self.manager.logs.get(key)
        if log is not None:
            log.append_as_leader(batch(), 0)
            assert log.topic_id is not None
            self.expected[key] = (log.topic_id, log.log_end_offset)

    @rule(is_clean=st.booleans())
    def ends(self, is_clean: bool) -> None:
        if self.manager is not None:
            if is_clean:
                assert self.manager.shutdown(broker_epoch=3)
            else:
                die(self.manager)
            self.manager = None

    @invariant()
    def records_are_there(self) -> None:
        if self.manager is not None:
            for key, (topic_id, end) in self.expected.items():
                log = self.manager.logs.get(key)
                if log is not None and log.topic_id == topic_id:
                    assert log.log_end_offset == end, key

    def teardown(self) -> None:
        if self.manager is not None:
            self.manager.abort()


def test_any_sequence(tmp_path: Path) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    Replicas.root = tmp_path
    run_state_machine_as_test(Replicas, settings=examples(75, stateful_step_count=15))  # type: ignore[no-untyped-call]
