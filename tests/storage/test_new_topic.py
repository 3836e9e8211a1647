"""A topic appears whole or not at all: locks, crashes at every step, other writers, and what lies in the folder already."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.storage.known_topics import forget, register
from tests.storage.partition_logs import batch
from tests.storage.segment_files import open_descriptors
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, StorageError, TopicExistsError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.dir_lock import DirLock
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.metadata_log import METADATA_DIR
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.meta_properties import MetaProperties, write_meta_properties
from tidelog.storage.folder.topics_file import TOPICS_FILE
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.topics import new_topics
from tidelog.storage.topics.new_topic import LEADER_EPOCH, NewTopic
from tidelog.storage.topics.new_topics import NewTopics, StagedTopic
from tidelog.storage.topics.topic import Topic


def topic(directory: Path, name: str = "events", partitions: int = 2, **properties: str) -> NewTopic:
    texts = {key.replace("_", "."): value for key, value in properties.items()}
    return NewTopic(directory, name, partitions, texts, ManualClock(0))


def append(log: PartitionLog, timestamp: int = 1000) -> None:
    log.append_as_leader(batch(0, timestamp), LEADER_EPOCH)


def write(directory: Path, name: str = "events", partitions: int = 2) -> None:
    with topic(directory, name, partitions) as new:
        for i, log in enumerate(new.logs):
            for _ in range(i + 1):
                append(log)
        new.commit()


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def checkpoint(directory: Path, name: str) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(directory / name)


def test_a_new_folder_is_one_that_readers_open(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    write(directory)
    assert entries(directory) == [
        ".lock",
        "__cluster_metadata-0",
        "events-0",
        "events-1",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert (directory / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    expected = {TopicPartition("events", 0): 1, TopicPartition("events", 1): 2}
    assert checkpoint(directory, names.HIGH_WATERMARK_CHECKPOINT) == expected
    assert checkpoint(directory, names.RECOVERY_POINT_CHECKPOINT) == expected
    log_dir = LogDir(directory)
    assert log_dir.topics() == {"events": [0, 1]}
    with log_dir.log("events", 1) as log:
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 2, 2)
        assert log.topic_id == LogDir(directory).log("events", 0).topic_id


def test_other_topics_stay_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, "first")
    kept = {TopicPartition("first", 0): 1, TopicPartition("elsewhere", 3): 77}
    for name in (names.HIGH_WATERMARK_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT):
        write_offset_checkpoint(tmp_path / name, kept)
    # A topic of this name was here once, and Kafka had moved its start.
    write_offset_checkpoint(
        tmp_path / names.LOG_START_OFFSET_CHECKPOINT, {TopicPartition("second", 0): 5, TopicPartition("x", 0): 6}
    )
    before = {path: path.read_bytes() for path in (tmp_path / "first-0").iterdir()}
    write(tmp_path, "second", 1)
    assert checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT) == {**kept, TopicPartition("second", 0): 1}
    assert checkpoint(tmp_path, names.RECOVERY_POINT_CHECKPOINT) == {**kept, TopicPartition("second", 0): 1}
    assert checkpoint(tmp_path, names.LOG_START_OFFSET_CHECKPOINT) == {TopicPartition("x", 0): 6}
    assert {path: path.read_bytes() for path in (tmp_path / "first-0").iterdir()} == before


def test_damaged_checkpoints_are_replaced(tmp_path: Path) -> None:
    (tmp_path / names.HIGH_WATERMARK_CHECKPOINT).write_bytes(b"nonsense\n")
    write(tmp_path)
    assert len(checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT)) == 2


def test_an_existing_topic_is_refused(tmp_path: Path) -> None:
    write(tmp_path, partitions=3)
    before = entries(tmp_path)
    with pytest.raises(TopicExistsError), topic(tmp_path, partitions=1):
        pass
    assert entries(tmp_path) == before
    write(tmp_path, "event")  # a prefix of its name is another topic
    write(tmp_path, "events-0")


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä", "a\n", "__cluster_metadata", "../x", "a\0"])
def test_illegal_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        topic(tmp_path, name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "a" * 249, "__consumer_offsets"])
def test_legal_names(name: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    assert LogDir(tmp_path).topics() == {name: [0, 1]}


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    with pytest.raises(ZeroDivisionError), topic(directory) as new:
        append(new.logs[0])
        assert len(entries(directory)) == 3
        raise ZeroDivisionError
    assert entries(tmp_path) == []
    write(tmp_path)
    before = entries(tmp_path)
    with topic(tmp_path, "other"):
        pass
    assert entries(tmp_path) == before


def test_readers_do_not_see_a_topic_on_its_way(tmp_path: Path) -> None:
    write(tmp_path, "first")
    with topic(tmp_path, "second") as new:
        append(new.logs[0])
        assert LogDir(tmp_path).topics() == {"first": [0, 1]}
        staged = [name for name in entries(tmp_path) if name.endswith("-delete")]
        assert [names.parse_topic_partition_name(name) for name in staged] == [("second", 0), ("second", 1)]


def test_a_folder_that_a_broker_holds(tmp_path: Path) -> None:
    write(tmp_path)
    before = entries(tmp_path)
    lock = f"import fcntl, sys; f = open({str(tmp_path / '.lock')!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"
    command = [sys.executable, "-c", f"{lock}; print('locked', flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(StorageError, match="using this folder"), topic(tmp_path, "other"):
            pass
        broker.communicate()
    assert entries(tmp_path) == before
    write(tmp_path, "other")


def test_the_lock_holds_others_off(tmp_path: Path) -> None:
    code = f"import fcntl; f=open({str(tmp_path / '.lock')!r},'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with DirLock(tmp_path):
        assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode != 0
        with pytest.raises(StorageError), DirLock(tmp_path):  # another thread of this process
            pass
        assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode != 0
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def killed_while_staging(directory: Path, name: str) -> NewTopic:
    """Leave a folder as kill -9 does: nothing is cleaned up, the lock is free."""
    new = topic(directory, name).__enter__()
    append(new.logs[0])
    for log in new.logs:
        log.close_handlers()
    new._all._unlock()
    return new


def test_leftovers_of_a_killed_import_are_swept_by_the_next(tmp_path: Path) -> None:
    killed_while_staging(tmp_path, "events")
    kafkas = tmp_path / f"old-0.{'0123456789abcdef' * 2}-delete"
    kafkas.mkdir()
    assert len(entries(tmp_path)) == 4
    write(tmp_path, "other", 1)
    assert [name for name in entries(tmp_path) if name.endswith("-delete")] == [kafkas.name]  # Kafka's own is Kafka's to remove
    write(tmp_path, "events")


@pytest.mark.parametrize(("published", "is_kafkas"), [(0, False), (1, False), (2, False), (1, True), (2, True)])
@pytest.mark.parametrize("name", ["events", "e" * 240])
def test_an_import_killed_between_its_renames_is_finished_by_the_next(
    published: int, is_kafkas: bool, name: str, tmp_path: Path
) -> None:
    """It is committed once it is registered; in Kafka's folder, which has no such file, once a partition has its name."""
    with topic(tmp_path, name, 3) as new:
        for i, log in enumerate(new.logs):
            for _ in range(i):
                append(log)
        staged = list(new._staged.folders)
        new.commit()
    for partition in range(published, 3):
        (tmp_path / f"{name}-{partition}").rename(staged[partition])
    for file in tmp_path.glob("*-checkpoint"):
        file.unlink()
    if is_kafkas:
        forget(tmp_path)
    write(tmp_path, "other", 1)
    assert LogDir(tmp_path).topics() == {name: [0, 1, 2], "other": [0]}
    expected = {TopicPartition(name, p): p for p in range(3)} | {TopicPartition("other", 0): 1}
    assert checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT) == expected


def test_a_failing_rename_takes_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "first")
    before = entries(tmp_path)
    real = new_topics._rename

    def fail(source: Path, target: Path) -> None:
        if target.name == "events-2":
            raise StorageError("cannot rename a folder")
        real(source, target)

    monkeypatch.setattr(new_topics, "_rename", fail)
    with pytest.raises(StorageError), topic(tmp_path, partitions=4) as new:
        new.commit()
    assert entries(tmp_path) == before
    assert len(checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT)) == 2
    assert list(read_topics(tmp_path)) == ["first"]
    with pytest.raises(StorageError), topic(tmp_path / "fresh", partitions=4) as new:
        new.commit()
    assert entries(tmp_path) == before


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError), topic(tmp_path / "file"):
        pass
    with pytest.raises(StorageError), topic(tmp_path / "file" / "below"):
        pass
    (tmp_path / "events-1").write_bytes(b"")
    with pytest.raises(TopicExistsError), topic(tmp_path):
        pass
    assert entries(tmp_path) == ["events-1", "file"]


def test_a_partitions_folder_is_no_data_folder(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(InvalidArgumentError, match="partition's folder"), topic(tmp_path / "events-0", "x"):
        pass


def test_a_folder_that_cannot_be_made() -> None:
    with pytest.raises(StorageError, match="cannot create"), topic(Path("/proc/tidelog")):
        pass


def test_absurd_numbers(tmp_path: Path) -> None:
    for partitions in (0, -1, 2**31):
        with pytest.raises(InvalidArgumentError):
            topic(tmp_path, partitions=partitions)
    with pytest.raises(InvalidArgumentError, match="open files"), topic(tmp_path, partitions=2**31 - 1):
        pass
    assert entries(tmp_path) == []
    with pytest.raises(InvalidArgumentError, match=r"segment\.bytes"):
        LogConfig(segment_bytes=13)
    with pytest.raises(InvalidArgumentError, match=r"segment\.bytes"):
        LogConfig.from_properties({"segment.bytes": "many"})
    with pytest.raises(InvalidArgumentError, match=r"unknown topic property"):
        LogConfig.from_properties({"segment.byte": "100"})


class TestRegistration:
    def test_a_log_manager_knows_the_topic(self, tmp_path: Path) -> None:
        with topic(tmp_path, "events", 2, retention_ms="-1", segment_bytes="100000", log_roll_hours="2") as new:
            append(new.logs[1], 1)
            new.commit()
        properties = {"retention.ms": "-1", "segment.bytes": "100000", "segment.ms": "7200000"}
        assert read_topics(tmp_path) == {"events": Topic("events", new.topic.topic_id, 2, properties)}
        with LogManager(tmp_path, ManualClock(10**12)) as manager:
            assert manager.is_configuration_known("events")
            log = manager.log("events", 1)
            assert (log.config.segment_bytes, log.config.retention_ms, log.topic_id) == (100_000, -1, new.topic.topic_id)
            assert manager.delete_old_segments() == 0
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 1, 1)

    def test_other_topics_stay_in_the_file(self, tmp_path: Path) -> None:
        other = Topic("other", uuid.UUID(int=7), 5, {"retention.ms": "1000"})
        register(tmp_path, other)
        write(tmp_path)
        topics = read_topics(tmp_path)
        assert (topics["other"], topics["events"].partitions) == (other, 2)

    def test_a_folder_without_the_file_gets_one(self, tmp_path: Path) -> None:
        """A backup, or an import of an older Tidelog: nothing is known of the topics that are there, as before."""
        write(tmp_path, "backup")
        forget(tmp_path)
        write(tmp_path)
        assert list(read_topics(tmp_path)) == ["events"]

    def test_kafkas_folder_is_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write_meta_properties(tmp_path, MetaProperties(1, "cluster"))
        write(tmp_path)
        assert ["Apache Kafka broker owns this folder" in record.getMessage() for record in caplog.records] == [True]
        assert not (tmp_path / METADATA_DIR).exists()

    def test_tidelogs_own_folder_is_none_of_kafkas(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with LogManager(tmp_path, ManualClock(0)) as manager:
            manager.create_topic("first", 1)
        assert (tmp_path / "meta.properties").exists()
        caplog.clear()
        write(tmp_path)
        assert not caplog.records
        assert list(read_topics(tmp_path)) == ["first", "events"]

    def test_a_topic_that_only_the_file_knows_is_there(self, tmp_path: Path) -> None:
        register(tmp_path, Topic("events", uuid.UUID(int=7), 1))
        with pytest.raises(TopicExistsError), topic(tmp_path):
            pass
        assert entries(tmp_path) == [METADATA_DIR]

    def test_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / TOPICS_FILE).write_text("{")
        with pytest.raises(CorruptCheckpointError), topic(tmp_path):
            pass
        assert entries(tmp_path) == [TOPICS_FILE]

    def test_what_cannot_be_taken_back_is_finished_by_the_next(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The disk fails once the topic is registered, and goes on failing: better all of it than a topic without records."""
        write(tmp_path, "first", 1)

        def fail(*_: object) -> None:
            raise StorageError("cannot write")

        with monkeypatch.context() as patched:
            patched.setattr(new_topics, "_rename", fail)
            with pytest.raises(StorageError), topic(tmp_path) as new:
                append(new.logs[1])
                patched.setattr(new._all, "_unregister", lambda: False)
                new.commit()
        assert LogDir(tmp_path).topics() == {"first": [0]}
        with LogManager(tmp_path, ManualClock(0)) as manager:
            assert [manager.log("events", p).log_end_offset for p in (0, 1)] == [0, 1]


def test_records_keep_their_times(tmp_path: Path) -> None:
    """A topic of LogAppendTime stamps what comes later; what was imported keeps its own time."""
    with topic(tmp_path, "events", 1, message_timestamp_type="LogAppendTime") as new:
        append(new.logs[0], 1234)
        new.commit()
    with LogManager(tmp_path, ManualClock(50_000)) as manager:
        log = manager.log("events", 0)
        log.append_as_leader(batch(0, 1), 0)
        assert [(one.max_timestamp, one.timestamp_type) for one in log.segments.active.batches()] == [(1234, 0), (50_000, 1)]


def test_an_empty_partition(tmp_path: Path) -> None:
    """UnifiedLogTest.testLoadEmptyLog, the writing half: what a clean stop of Kafka leaves of an empty partition."""
    with topic(tmp_path, partitions=1) as new:
        new.commit()
    assert {path.name: path.stat().st_size for path in (tmp_path / "events-0").iterdir()} == {
        f"{0:020d}.log": 0,
        f"{0:020d}.index": 0,
        f"{0:020d}.timeindex": 0,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }


def test_everything_is_on_the_disk_before_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}
    real_fsync, real_rename = os.fsync, new_topics._rename
    checked = 0

    def fsync(fd: int) -> None:
        real_fsync(fd)
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced[str(path).removesuffix(".tmp")] = os.fstat(fd).st_mtime_ns

    def rename(source: Path, target: Path) -> None:
        nonlocal checked
        for path in (*source.iterdir(), source):
            if path.suffix == ".timemap":  # Nothing but a scan's speed hangs on it.
                continue
            assert synced[str(path)] == path.stat().st_mtime_ns, path
            checked += 1
        assert str(tmp_path / METADATA_DIR / f"{0:020}.log") in synced
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(new_topics, "_rename", rename)
    with topic(tmp_path, segment_bytes="200") as new:
        for log in new.logs:
            for _ in range(10):
                append(log)
        new.commit()
    assert checked > 2 * 20


def test_partitions_that_are_not_written_hold_no_files_open(tmp_path: Path) -> None:
    """A topic may have more partitions than a process may have files open: a restore writes a few of them at a time."""
    before = open_descriptors()
    many = StagedTopic("many", 100, {}, topic_id=uuid.uuid4())
    with NewTopics(tmp_path, ManualClock(0)) as new:
        new.add(many)
        assert open_descriptors() < before + 10
        for partition, log in enumerate(many.logs):
            log.append_as_follower(batch(0, 1000), LEADER_EPOCH)
            many.finish(partition)
            assert open_descriptors() < before + 10
        new.commit()
    assert checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT) == {TopicPartition("many", one): 1 for one in range(100)}
