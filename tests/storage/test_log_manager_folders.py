"""Folders that others made: backups, Kafka's, another node's, damaged ones."""

from __future__ import annotations

import base64
import logging
import shutil
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN, RELEASES, expected
from tests.storage.managers import files, fill, managed, started
from tests.storage.partition_logs import NOW_MS, offsets, records
from tidelog.clock import ManualClock
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.log_manager import LogManager
from tidelog.storage.topics.new_topic import NewTopic

YEARS_MS = 20 * 365 * 24 * 3600 * 1000


def logs_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("*/*.log"))}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("release", RELEASES)
class TestGoldenFolder:
    """A copy of what a broker left: served as it is, nothing deleted, whatever the time; one notice."""

    def test_is_served_and_kept(self, tmp_path: Path, release: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        folder = shutil.copytree(GOLDEN / release / "log", tmp_path / "data")
        if not is_clean:
            (folder / CLEAN_SHUTDOWN_FILE).unlink()
        before = logs_of(folder)
        high_watermarks = read_offset_checkpoint(folder / "replication-offset-checkpoint")
        clock = ManualClock(NOW_MS + YEARS_MS)
        with LogManager(folder, clock) as manager:
            assert manager.had_clean_shutdown == is_clean
            assert manager.offline_partitions() == {}
            assert manager.topics() == {}
            assert manager.owner.node_id == 1
            assert not any(manager.is_configuration_known(key.topic) for key in manager.partitions())
            for topic, partitions in expected(release).items():
                for one in partitions:
                    log = manager.log(topic, one["partition"])
                    wanted = [
                        (offset, timestamp, key and base64.b64decode(key)) for offset, timestamp, _, key, _, _ in one["records"]
                    ]
                    found = {record.offset: (record.timestamp, record.key) for record in records(log)}
                    assert [(offset, *found[offset]) for offset, *_ in wanted] == wanted
                    assert (log.log_start_offset, log.high_watermark) == (one["log_start"], one["high_watermark"])
            for _ in range(5):
                clock.advance(400_000)
                manager.tick()
            assert (manager.delete_old_segments(), logs_of(folder)) == (0, before)
        assert logs_of(folder) == before
        assert read_offset_checkpoint(folder / "replication-offset-checkpoint") == high_watermarks
        notices = [record.getMessage() for record in caplog.records if "the configuration of" in record.message]
        assert len(notices) == 1
        assert "__consumer_offsets, " in notices[0]
        assert " more is unknown: retention and compaction are off for them" in notices[0]
        assert read_topics(folder) == {}

    def test_a_topic_can_be_adopted_and_another_made(self, tmp_path: Path, release: str, is_clean: bool) -> None:
        folder = shutil.copytree(GOLDEN / release / "log", tmp_path / "data")
        if not is_clean:
            (folder / CLEAN_SHUTDOWN_FILE).unlink()
        with managed(folder) as manager:
            manager.adopt_topic("v2-none-ct", {"retention.bytes": 20_000, "retention.ms": -1})
            manager.create_topic("new", 2)
            fill(manager.log("new", 1), 3)
            assert manager.delete_old_segments() > 0
        with managed(folder) as manager:
            assert set(manager.topics()) == {"v2-none-ct", "new"}
            assert offsets(manager.log("new", 1)) == [0, 1, 2]
        assert [path.name for path in folder.glob("__cluster_metadata-*")] == ["__cluster_metadata-1"], "Kafka refuses the other"


def test_what_kafka_leaves_aside_is_left_aside(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.create_topic("t", 1)
    others = (
        "remote-log-index-cache",
        "t-1.0123456789abcdef0123456789abcdef-stray",
        "t-2.0123456789abcdef0123456789abcdef-future",
        "lost+found",
        "t-x",
        "t-01",
        "-3",
    )
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"not ours")
    (tmp_path / "file-7").write_text("a file")
    with managed(tmp_path) as manager:
        assert manager.partitions() == [("t", 0)]
    for name in others:
        assert (tmp_path / name / "00000000000000000000.log").read_bytes() == b"not ours"


def test_what_was_being_deleted_goes(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with managed(tmp_path) as manager:
        manager.create_topic("t", 1)
    going = tmp_path / "u-0.0123456789abcdef0123456789abcdef-delete"
    going.mkdir()
    (going / "00000000000000000000.log").touch()
    manager = started(tmp_path, clock)
    assert manager.partitions() == [("t", 0)]
    clock.advance(59_999)
    manager.tick()
    assert going.exists()
    clock.advance(1)
    manager.tick()
    assert not going.exists()
    manager.shutdown()


def test_what_cannot_be_removed_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    going = tmp_path / "u-0.0123456789abcdef0123456789abcdef-delete"
    going.mkdir(parents=True)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "not yours", str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with managed(tmp_path):
            pass
    assert "-delete could not be removed: not yours" in caplog.text
    with managed(tmp_path):
        pass
    assert not going.exists()


class TestOwner:
    def test_a_folder_without_topics_is_not_taken_for_kafkas(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        clock = ManualClock(NOW_MS)
        with managed(tmp_path / "data", clock):
            pass
        with NewTopic(tmp_path / "data", "imported", 1, {}, clock) as topic:
            topic.commit()
        assert caplog.messages == []
        assert list(read_topics(tmp_path / "data")) == ["imported"]

    def test_a_new_folder_gets_one(self, tmp_path: Path) -> None:
        with managed(tmp_path, node_id=7, cluster_id="abc") as manager:
            assert (manager.owner.node_id, manager.owner.cluster_id, manager.owner.version) == (7, "abc", 1)
            assert manager.owner.directory_id is not None
            assert read_meta_properties(tmp_path) == manager.owner
        with managed(tmp_path) as again:
            assert again.owner == manager_owner(tmp_path)

    @pytest.mark.parametrize("properties", [{"node_id": 8}, {"cluster_id": "xyz"}, {"node_id": 7, "cluster_id": "xyz"}])
    def test_anothers_folder_is_refused(self, tmp_path: Path, properties: dict[str, str | int]) -> None:
        with managed(tmp_path, node_id=7, cluster_id="abc") as manager:
            manager.create_topic("t", 1)
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)}
        with pytest.raises(InvalidArgumentError, match="belongs to a different"):
            started(tmp_path, **properties)
        assert {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)} == before
        assert CLEAN_SHUTDOWN_FILE in before

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("version=1\n", r"version 1, but no node\.id"),
            ("version=9\nnode.id=1\n", "found 9, expected 0 or 1"),
            ("", r"version 0, but no broker\.id"),
            ("nonsense", r"version 0, but no broker\.id"),
            ("version=1\nnode.id=four\n", "found 'four'"),
            ("version=1\nnode.id=1\ncluster.id=\\u12\n", "an invalid escape"),
            *(
                (f"version=1\nnode.id=1\ndirectory.id={one}\n", rf"directory\.id in meta\.properties is invalid: found '{one}'")
                for one in ("", "xyz", "hHa37Y8VmWSBv1MUzYPlVwAAAA", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAg")
            ),
        ],
    )
    def test_a_damaged_one(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "meta.properties").write_text(text)
        with pytest.raises(CorruptCheckpointError, match=message):
            started(tmp_path)
        assert (tmp_path / "meta.properties").read_text() == text


def manager_owner(folder: Path) -> object:
    return read_meta_properties(folder)


def test_unknown_properties_of_the_folder(tmp_path: Path) -> None:
    for properties in ({"no.such": 1}, {"log.cleaner.enable": "perhaps"}, {"node.id": -1}, {"node.id": 1.5}, {"node.id": "x"}):
        with pytest.raises(InvalidArgumentError):
            LogManager(tmp_path, ManualClock(), properties=properties)
