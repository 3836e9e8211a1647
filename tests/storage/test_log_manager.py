"""A data folder's manager: start and end, retention, flushes, checkpoints, locks (LogManagerTest)."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.managers import QUIET, die, files, fill, managed, started
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, LogOfflineError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.model import TopicPartition
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.log_manager import LoadProgress, LogManager
from tidelog.storage.scheduler import Scheduler

SIZE = len(batch(key=b"key 0000"))
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


class TestStart:
    def test_a_log_is_created_and_takes_records(self, tmp_path: Path) -> None:
        """LogManagerTest.testCreateLog."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            log = manager.log("t", 0)
            assert (tmp_path / "t-0" / "00000000000000000000.log").exists()
            assert log.append_as_leader(batch(), 0).first_offset == 0
            assert offsets(log) == [0]

    def test_the_folder_is_created(self, tmp_path: Path) -> None:
        with managed(tmp_path / "a" / "b") as manager:
            assert (manager.partitions(), manager.topics()) == ([], {})
        assert CLEAN_SHUTDOWN_FILE in files(tmp_path / "a" / "b")

    def test_a_folder_that_cannot_be(self, tmp_path: Path) -> None:
        """LogManagerTest.testCreateLogWithInvalidLogDir."""
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError, match="cannot create the data folder"):
            started(tmp_path / "file" / "data")

    def test_a_log_that_is_not_there(self, tmp_path: Path) -> None:
        """LogManagerTest.testGetNonExistentLog."""
        with managed(tmp_path) as manager:
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.log("t", 0)
            assert files(tmp_path) == {
                ".lock",
                "meta.properties",
                "__cluster_metadata-0",
                RECOVERY_POINTS,
                LOG_STARTS,
                HIGH_WATERMARKS,
            }

    def test_everything_comes_back(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("b", 2, {"segment.bytes": 10 * SIZE})
            manager.create_topic("a", 1)
            fill(manager.log("b", 1), 25)
            owner = manager.owner
        with managed(tmp_path) as manager:
            assert manager.had_clean_shutdown
            assert manager.partitions() == [("a", 0), ("b", 0), ("b", 1)]
            log = manager.log("b", 1)
            assert (offsets(log), log.high_watermark, len(log.segments)) == (list(range(25)), 25, 3)
            assert log.config.segment_bytes == 10 * SIZE
            assert log.topic_id == manager.topics()["b"].topic_id
            assert manager.owner == owner

    def test_progress(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 3)
        told: list[LoadProgress] = []
        with LogManager(tmp_path, ManualClock(NOW_MS), progress=told.append):
            keys = [TopicPartition("t", p) for p in range(3)]
            assert told == [LoadProgress(done, 3, key, False) for done, key in enumerate(keys, start=1)]

    @pytest.mark.parametrize("threads", [1, 3])
    def test_recovery_with_several_threads(self, tmp_path: Path, threads: int) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 5)
        for partition in range(5):
            fill(manager.log("t", partition), 10 + partition)
        die(manager)
        told: list[RecoveryProgress] = []
        manager = LogManager(
            tmp_path,
            ManualClock(NOW_MS),
            properties={"num.recovery.threads.per.data.dir": threads},
            recovery_progress=told.append,
        )
        with manager:
            assert not manager.had_clean_shutdown
            assert [manager.log("t", partition).log_end_offset for partition in range(5)] == [10, 11, 12, 13, 14]
            assert {one.directory.name for one in told} == {f"t-{partition}" for partition in range(5)}

    def test_an_interrupted_start_after_a_clean_end_is_clean(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 3)
            fill(manager.log("t", 2), 3)

        def interrupt(progress: LoadProgress) -> None:
            if progress.partitions_done == 2:
                raise KeyboardInterrupt

        checkpoints = {name: (tmp_path / name).read_bytes() for name in (RECOVERY_POINTS, HIGH_WATERMARKS)}
        with pytest.raises(KeyboardInterrupt):
            LogManager(tmp_path, ManualClock(NOW_MS), progress=interrupt).startup()
        assert CLEAN_SHUTDOWN_FILE in files(tmp_path)
        assert {name: (tmp_path / name).read_bytes() for name in checkpoints} == checkpoints
        with managed(tmp_path) as manager:
            assert (manager.had_clean_shutdown, manager.log("t", 2).high_watermark) == (True, 3)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_clean_shutdown_file_when_shutdown_called_before_startup_complete(self, tmp_path: Path, threads: int) -> None:
        """LogManagerTest.testCleanShutdownFileWhenShutdownCalledBeforeStartupComplete: after a crash, no file."""
        manager = started(tmp_path)
        manager.create_topic("t", 9)
        die(manager)

        def interrupt(progress: LoadProgress) -> None:
            raise KeyboardInterrupt

        properties = {"num.recovery.threads.per.data.dir": threads}
        manager = LogManager(tmp_path, ManualClock(NOW_MS), progress=interrupt, properties=properties)
        with pytest.raises(KeyboardInterrupt):
            manager.startup()
        assert not manager.shutdown()
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        with managed(tmp_path) as manager:
            assert not manager.had_clean_shutdown
            assert len(manager.partitions()) == 9

    def test_nothing_is_done_while_it_does_not_run(self, tmp_path: Path) -> None:
        manager = LogManager(tmp_path, ManualClock(NOW_MS))
        assert not manager.shutdown()
        with pytest.raises(InvalidArgumentError, match="not running"):
            manager.topics()
        assert files(tmp_path) == set()

    def test_it_starts_again(self, tmp_path: Path) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 1)
        fill(manager.log("t", 0), 2)
        assert manager.shutdown()
        manager.startup()
        assert offsets(manager.log("t", 0)) == [0, 1]
        assert manager.shutdown()


class TestEnd:
    def test_clean_shutdown_file_with_broker_epoch(self, tmp_path: Path) -> None:
        """LogManagerTest.testCleanShutdownFileWithBrokerEpoch."""
        manager = started(tmp_path)
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        assert manager.shutdown(broker_epoch=3)
        assert json.loads((tmp_path / CLEAN_SHUTDOWN_FILE).read_text()) == {"version": 0, "brokerEpoch": 3}

    def test_handling_exceptions_during_shutdown(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """LogManagerTest.testHandlingExceptionsDuringShutdown: the other logs are closed, the folder has no mark."""
        manager = started(tmp_path)
        manager.create_topic("t", 3)
        for partition in range(3):
            fill(manager.log("t", partition), 5)
        logs = [manager.log("t", partition) for partition in range(3)]
        broken = logs[1]

        def fail() -> None:
            raise RuntimeError("no more")

        broken.local.close = fail  # type: ignore[method-assign]
        assert not manager.shutdown()
        assert "t-1: not closed cleanly: no more" in caplog.text
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        assert [log.local.is_closed for log in logs] == [True, True, True]
        assert not any(segment.log.is_open for log in logs for segment in log.segments)
        with managed(tmp_path) as manager:
            assert [offsets(manager.log("t", partition)) for partition in range(3)] == [[0, 1, 2, 3, 4]] * 3

    def test_what_waits_is_done_at_the_end(self, tmp_path: Path) -> None:
        with managed(tmp_path, **QUIET) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 5 * SIZE, "retention.bytes": 0})
            fill(manager.log("t", 0), 20)
            assert manager.delete_old_segments() == 4
            assert any(name.endswith(".deleted") for name in files(tmp_path / "t-0"))
        assert not any(name.endswith(".deleted") for name in files(tmp_path / "t-0"))

    def test_a_clean_start_reads_no_more_than_the_ends(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 5 * SIZE})
            fill(manager.log("t", 0), 20)
        (tmp_path / "t-0" / "00000000000000000005.log").chmod(0o400)
        (tmp_path / "t-0" / "00000000000000000005.log").write_bytes(b"x" * 5 * SIZE)
        with managed(tmp_path) as manager:
            assert manager.log("t", 0).log_end_offset == 20


class TestRetention:
    def test_cleanup_expired_segments(self, tmp_path: Path) -> None:
        """LogManagerTest.testCleanupExpiredSegments: one segment is left, and nothing in the folder but its files."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, **QUIET) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 20 * SIZE, "retention.ms": 600_000})
            log = manager.log("t", 0)
            fill(log, 200)
            assert len(log.segments) > 1
            end = log.log_end_offset
            clock.advance(600_000 + 300_000 + 30_000)
            manager.tick()
            assert (len(log.segments), log.log_end_offset, log.log_start_offset) == (1, end, end)
            clock.advance(60_001)
            manager.tick()
            # log, two indexes (the first append makes them), a snapshot; epochs and, unlike in the original, the topic's id
            fill(log, 1, first_ms=clock.now_ms())
            assert len(files(tmp_path / "t-0")) == 4 * len(log.segments) + 2
            assert log.read(end, 1024).data
            with pytest.raises(Exception, match="below the log start"):
                log.read(0, 1024)

    def test_cleanup_segments_to_maintain_size(self, tmp_path: Path) -> None:
        """LogManagerTest.testCleanupSegmentsToMaintainSize: room for five segments and a bit more leaves six."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, **QUIET) as manager:
            properties = {"segment.bytes": 10 * SIZE, "retention.bytes": 5 * 10 * SIZE + 10}
            manager.create_topic("t", 1, properties)
            log = manager.log("t", 0)
            for i in range(200):
                log.append_as_leader(batch(timestamp=NOW_MS + i, key=b"key 0000"), 0)
            log.update_high_watermark(200)
            assert len(log.segments) == 20
            clock.advance(330_000)
            manager.tick()
            assert (len(log.segments), log.log_start_offset) == (6, 140)
            clock.advance(60_001)
            manager.tick()
            assert offsets(log) == list(range(140, 200))

    @pytest.mark.parametrize("policy", ["compact", "compact,delete"])
    def test_does_not_clean_logs_with_compact_policy(self, tmp_path: Path, policy: str) -> None:
        """LogManagerTest.testDoesntCleanLogsWithCompactPolicy, LogManagerTest.testDoesntCleanLogsWithCompactDeletePolicy."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, **QUIET) as manager:
            properties = {"segment.bytes": 10 * SIZE, "retention.ms": 1, "retention.bytes": 1, "cleanup.policy": policy}
            manager.create_topic("t", 1, properties)
            fill(manager.log("t", 0), 100)
            clock.advance(1_000_000)
            manager.tick()
            assert manager.log("t", 0).log_start_offset == 0

    def test_nothing_above_the_high_watermark(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 10 * SIZE, "retention.bytes": 0})
            log = manager.log("t", 0)
            fill(log, 30)
            log.update_high_watermark(12)
            assert manager.delete_old_segments() == 1


class TestFlush:
    def test_time_based_flush(self, tmp_path: Path) -> None:
        """LogManagerTest.testTimeBasedFlush."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, log_flush_scheduler_interval_ms=1000) as manager:
            manager.create_topic("t", 1, {"flush.ms": 1000})
            log = manager.log("t", 0)
            last_flush_ms = log.local.last_flush_ms
            fill(log, 200)
            assert log.recovery_point == 0
            clock.advance(30_000)
            manager.tick()
            assert log.local.last_flush_ms != last_flush_ms
            assert log.recovery_point == 200

    def test_a_clock_that_was_set_back_does_not_put_it_off(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, log_flush_scheduler_interval_ms=1000, log_initial_task_delay_ms=0) as manager:
            manager.create_topic("t", 1, {"flush.ms": 1000})
            fill(manager.log("t", 0), 5)
            clock.advance(-1_000_000_000)
            manager.tick()
            assert manager.log("t", 0).recovery_point == 5


class TestCheckpoints:
    def test_checkpoint_recovery_points(self, tmp_path: Path) -> None:
        """LogManagerTest.testCheckpointRecoveryPoints."""
        with managed(tmp_path) as manager:
            for topic, count in (("test-a", 200), ("test-b", 150)):
                manager.create_topic(topic, 2)
                fill(manager.log(topic, 1), count)
                manager.log(topic, 1).flush()
            manager.checkpoint_recovery_points()
            assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {
                ("test-a", 0): 0,
                ("test-a", 1): 200,
                ("test-b", 0): 0,
                ("test-b", 1): 150,
            }

    @pytest.mark.parametrize("spelling", ["{}/", "{}/../{name}", "{}/./"])
    def test_recovery_directory_mapping(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
        """LogManagerTest.testRecoveryDirectoryMappingWithTrailingSlash, …WithRelativeDirectory."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").mkdir()
        with LogManager(spelling.format("data", name="data"), ManualClock(NOW_MS)) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 50)
            manager.log("t", 0).flush()
            manager.checkpoint_recovery_points()
            assert read_offset_checkpoint(tmp_path / "data" / RECOVERY_POINTS) == {("t", 0): 50}

    @pytest.mark.parametrize(("start", "kept_from"), [(20, 0), (50, 0), (1000, 0), (13, 13)])
    def test_a_log_start_that_the_leader_epochs_contradict(self, tmp_path: Path, start: int, kept_from: int) -> None:
        """A checkpoint that something else overwrote deletes nothing; one that DeleteRecords wrote is believed."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 10 * SIZE})
            fill(manager.log("t", 0), 50)
            if kept_from:
                manager.log("t", 0).delete_records(kept_from)
        (tmp_path / LOG_STARTS).write_text(f"0\n1\nt 0 {start}\n")
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert (log.log_start_offset, log.log_end_offset) == (kept_from, 50)
            log.delete_old_segments()
            first = log.segments.first
            assert first is not None
            assert first.base_offset <= kept_from

    def test_checkpoint_log_start_offset_for_normal_topic(self, tmp_path: Path) -> None:
        """LogManagerTest.testCheckpointLogStartOffsetForNormalTopic: only of a log that starts inside its first segment."""
        path = tmp_path / LOG_STARTS
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 10 * SIZE})
            log = manager.log("t", 0)
            fill(log, 50)
            manager.checkpoint_log_start_offsets()
            assert read_offset_checkpoint(path) == {}
            assert path.read_text() == "0\n0\n"
            log.delete_records(13)
            manager.checkpoint_log_start_offsets()
            assert read_offset_checkpoint(path) == {("t", 0): 13}
            manager.delete_old_segments()
            assert log.segments.base_offsets[0] == 10
            manager.checkpoint_log_start_offsets()
            assert read_offset_checkpoint(path) == {("t", 0): 13}
            log.delete_records(20)
            manager.delete_old_segments()
            manager.checkpoint_log_start_offsets()
            assert read_offset_checkpoint(path) == {}
        with managed(tmp_path) as manager:
            assert manager.log("t", 0).log_start_offset == 20

    def test_a_log_start_comes_back(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 10)
            manager.log("t", 0).delete_records(4)
        with managed(tmp_path) as manager:
            assert offsets(manager.log("t", 0)) == [4, 5, 6, 7, 8, 9]

    def test_each_has_its_time(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        manager = started(tmp_path, clock)
        manager.create_topic("t", 1)
        fill(manager.log("t", 0), 10)
        manager.log("t", 0).delete_records(3)
        manager.log("t", 0).flush()
        clock.advance(5_000)
        manager.tick()
        assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {("t", 0): 10}
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {}
        clock.advance(25_000)
        manager.tick()
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {("t", 0): 10}
        assert read_offset_checkpoint(tmp_path / LOG_STARTS) == {("t", 0): 3}
        die(manager)
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert (log.log_start_offset, log.recovery_point, log.high_watermark) == (3, 10, 10)

    def test_what_has_not_changed_is_not_written(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 1)
            manager.checkpoint_high_watermarks()
            before = (tmp_path / HIGH_WATERMARKS).stat().st_ino
            clock.advance(5_000)
            manager.tick()
            assert (tmp_path / HIGH_WATERMARKS).stat().st_ino == before
            fill(manager.log("t", 0), 1)
            clock.advance(5_000)
            manager.tick()
            assert (tmp_path / HIGH_WATERMARKS).stat().st_ino != before

    @pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS])
    @pytest.mark.parametrize("content", [b"", b"0\n", b"7\n1\nt 0 5\n", b"0\n1\nt 0\n", b"0\n3\nt 0 5\n", b"\xff\xfe"])
    def test_damaged_ones_count_as_empty(self, tmp_path: Path, name: str, content: bytes) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 1)
        fill(manager.log("t", 0), 10)
        manager.log("t", 0).flush()
        manager.shutdown()
        (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
        (tmp_path / name).write_bytes(content)
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert (log.log_start_offset, log.log_end_offset) == (0, 10)
            assert log.recovery_point == (0 if name == RECOVERY_POINTS else 10)
            assert log.high_watermark == (0 if name == HIGH_WATERMARKS else 10)

    def test_lines_of_partitions_that_are_gone_go(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
        write_offset_checkpoint(tmp_path / RECOVERY_POINTS, {TopicPartition("gone", 0): 5, TopicPartition("t", 0): 0})
        with managed(tmp_path):
            pass
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {("t", 0): 0}

    def test_offsets_behind_the_log_end_come_down(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 5)
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            write_offset_checkpoint(tmp_path / name, {TopicPartition("t", 0): 1000})
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert (log.recovery_point, log.high_watermark) == (5, 5)

    def test_log_reinitialize_after_manual_delete(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogReinitializeAfterManualDelete: the files are gone, the log start stays."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
        for path in (tmp_path / "t-0").iterdir():
            path.unlink()
        write_offset_checkpoint(tmp_path / LOG_STARTS, {TopicPartition("t", 0): 500})
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert (log.log_start_offset, log.log_end_offset) == (500, 500)


class TestLock:
    def test_two_log_managers_using_same_dir_fails(self, tmp_path: Path) -> None:
        """LogManagerTest.testTwoLogManagersUsingSameDirFails."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            with pytest.raises(StorageError, match="is using this folder"):
                started(tmp_path)
            with pytest.raises(StorageError, match="is using this folder"):
                manager.startup()
            fill(manager.log("t", 0), 1)
        with managed(tmp_path) as manager:
            assert offsets(manager.log("t", 0)) == [0]

    def test_lock(self, tmp_path: Path) -> None:
        """LogManagerTest.testLock: another process is refused, and refuses."""
        program = f"""
import sys
from tidelog.clock import SystemClock
from tidelog.errors import StorageError
from tidelog.storage.log_manager import LogManager
try:
    with LogManager({str(tmp_path)!r}, SystemClock()):
        print("running", flush=True)
        sys.stdin.readline()
except StorageError as error:
    print(error.message)
"""
        with managed(tmp_path):
            refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, input="")
            assert "is using this folder" in refused.stdout
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            with pytest.raises(StorageError, match="is using this folder"):
                started(tmp_path)
            process.communicate("\n")
        with managed(tmp_path) as manager:
            assert manager.had_clean_shutdown

    def test_a_start_that_fails_gives_the_lock_back(self, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=4\n")
        with pytest.raises(InvalidArgumentError, match="a different node"):
            started(tmp_path, node_id=5)
        with managed(tmp_path, node_id=4):
            pass


def test_a_scheduler_of_the_owners(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    scheduler = Scheduler(clock)
    with LogManager(tmp_path, clock, scheduler=scheduler) as manager:
        manager.create_topic("t", 1)
        fill(manager.log("t", 0), 1)
        clock.advance(5000)
        assert scheduler.tick() > 0
        assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {("t", 0): 1}


def test_a_log_that_its_reader_has_closed(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create_topic("t", 1)
    log = manager.log("t", 0)
    fill(log, 1)
    log.close()
    with pytest.raises(LogOfflineError, match="the log is closed"):
        log.append_as_leader(batch(), 0)
    assert manager.shutdown()


def test_a_thousand_partitions(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is open for a partition that nobody uses, and nothing is said."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # The disk's share is not what this is about.
    with managed(tmp_path) as manager:
        manager.create_topic("t", 1000)
        fill(manager.log("t", 999), 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with managed(tmp_path) as manager:
        assert len(manager.partitions()) == 1000
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
        assert manager.log("t", 999).log_end_offset == 1
    assert caplog.text == ""
