"""A disk that refuses: one partition is offline with a reason, the others go on, and what was acknowledged stays."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.storage.managers import die, files, fill, managed, started
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tidelog.clock import ManualClock
from tidelog.errors import LogOfflineError, TidelogError, UnknownTopicOrPartitionError
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.model import TopicPartition
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.log_manager import LogManager
from tidelog.storage.removed_files import AT_ONCE, RemovedFiles

ROOT = Path(__file__).resolve().parents[2]
HIGH_WATERMARKS = "replication-offset-checkpoint"

FAILURES = [
    ("pwrite", errno.ENOSPC, "No space left on device"),
    ("pwrite", errno.EIO, "Input/output error"),
    ("fsync", errno.EIO, "Input/output error"),
    ("ftruncate", errno.EIO, "Input/output error"),
    ("open", errno.EROFS, "Read-only file system"),
]


def refuse(patch: pytest.MonkeyPatch, call: str, code: int, folder: Path) -> None:
    """Have an `os` function fail for everything in `folder`; `open` only where it is for writing."""
    original = getattr(os, call)

    def refusing(target: Any, *arguments: Any, **keywords: Any) -> Any:
        path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        if call == "open" and not arguments[0] & os.O_ACCMODE:
            return original(target, *arguments, **keywords)
        if folder in (path, *path.parents):
            raise OSError(code, os.strerror(code), str(path))
        return original(target, *arguments, **keywords)

    patch.setattr(os, call, refusing)


class TestWhileItRuns:
    @pytest.mark.parametrize(("call", "code", "text"), FAILURES)
    def test_one_partition_is_offline(self, tmp_path: Path, call: str, code: int, text: str) -> None:
        clock = ManualClock(NOW_MS)
        properties: dict[str, Any] = {"segment.bytes": 1000, "flush.ms": 10, "retention.ms": 1, "segment.index.bytes": 240}
        manager = started(tmp_path, clock, log_flush_scheduler_interval_ms=1000)
        manager.create_topic("t", 3, properties)
        acknowledged = dict.fromkeys(range(3), 0)

        def append(partition: int) -> None:
            log = manager.log("t", partition)
            # As fresh as the clock: retention has nothing to delete.
            info = log.append_as_leader(batch(timestamp=clock.now_ms() + 10**9), 0)
            acknowledged[partition] = info.last_offset + 1
            log.update_high_watermark(log.log_end_offset)

        for partition in range(3):
            for _ in range(5):
                append(partition)
        with pytest.MonkeyPatch.context() as patch:
            refuse(patch, call, code, tmp_path / "t-1")
            for _ in range(40):
                for partition in range(3):
                    if not manager.log("t", partition).is_offline:
                        try:
                            append(partition)
                        except LogOfflineError:
                            assert partition == 1
                clock.advance(1000)
                manager.tick()
            log = manager.log("t", 1)
            assert manager.offline_partitions().keys() == {("t", 1)}
            assert text in manager.offline_partitions()["t", 1]
            assert manager.statistics()["t"].offline_partitions == (1,)
            with pytest.raises(LogOfflineError, match=text):
                log.append_as_leader(batch(), 0)
            for partition in range(3):
                assert offsets(manager.log("t", partition)) == list(range(acknowledged[partition]))
            assert acknowledged[0] == acknowledged[2] == 45
            assert manager.log("t", 0).recovery_point > 5
            assert not manager.shutdown()
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        with managed(tmp_path, clock) as manager:
            assert manager.offline_partitions() == {}
            for partition in range(3):
                assert offsets(manager.log("t", partition))[: acknowledged[partition]] == list(range(acknowledged[partition]))
                append(partition)

    def test_and_comes_back(self, tmp_path: Path) -> None:
        """Once the disk is well, the partition is loaded again, and recovered."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2, {"segment.bytes": 1000})
            for partition in range(2):
                fill(manager.log("t", partition), 30)
            manager.log("t", 0).delete_records(3)
            with pytest.MonkeyPatch.context() as patch:
                refuse(patch, "pwrite", errno.EIO, tmp_path / "t-0")
                with pytest.raises(LogOfflineError):
                    fill(manager.log("t", 0), 1)
                refuse(patch, "scandir", errno.EIO, tmp_path / "t-0")
                with pytest.raises(TidelogError):
                    manager.bring_online("t", 0)
            assert list(manager.offline_partitions()) == [("t", 0)]
            old = manager.log("t", 0)
            log = manager.bring_online("t", 0)
            assert log is manager.log("t", 0)
            assert log is not old
            assert manager.offline_partitions() == {}
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 30, 30)
            fill(log, 5)
            assert not any(segment.log.is_open for segment in old.segments)
            assert manager.bring_online("t", 0) is log
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.bring_online("t", 2)
            manager.tick()
        assert CLEAN_SHUTDOWN_FILE in files(tmp_path)
        with managed(tmp_path) as manager:
            assert offsets(manager.log("t", 0)) == list(range(3, 35))

    def test_one_that_is_not_taken_up_keeps_no_other(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 2, {})
            manager.offline.returned = lambda log, _: [][log.topic_partition.partition]
            for partition in range(2):
                manager.log("t", partition).go_offline("append", OSError("no"))
            for _ in range(20):
                clock.advance(1000)
                manager.tick()
            assert manager.offline_partitions() == {}

    @pytest.mark.parametrize("what", ["the log", "its folder", "the data folder"])
    def test_files_that_somebody_moves_away(self, tmp_path: Path, what: str) -> None:
        """Writes to them would go on, into nothing: they are refused until the files are back."""
        clock, data = ManualClock(NOW_MS), tmp_path / "data"
        moved = {"the log": data / "t-0" / f"{0:020}.log", "its folder": data / "t-0", "the data folder": data}[what]
        with managed(data, clock) as manager:
            manager.create_topic("t", 2, {"segment.bytes": 1000})
            logs = [manager.log("t", number) for number in range(2)]
            for log in logs:
                fill(log, 3)
            for _ in range(2):
                clock.advance(5_000)
                manager.tick()
                fill(logs[0], 3)
            assert not manager.offline_partitions()
            moved.rename(tmp_path / "elsewhere")
            clock.advance(5_000)
            manager.tick()
            offline = manager.offline_partitions()
            assert list(offline) == [("t", 0)], "nothing was written to the other one since"
            assert "another process removed the file that is being written" in offline[TopicPartition("t", 0)]
            with pytest.raises(LogOfflineError):
                fill(logs[0], 1)
            if what == "the log":
                manager.tick()
                (tmp_path / "elsewhere").rename(moved)
                return
            for _ in range(3):
                clock.advance(5_000)
                manager.tick()
            assert list(manager.offline_partitions()) == [("t", 0)]
            (tmp_path / "elsewhere").rename(moved)
            for _ in range(4):
                clock.advance(5_000)
                manager.tick()
            assert not manager.offline_partitions()
            assert offsets(manager.log("t", 0)) == list(range(9))

    def test_a_checkpoint_that_cannot_be_written(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is tried again and again, and told once; the logs go on."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 3)
            manager.checkpoint_high_watermarks()
            before = (tmp_path / HIGH_WATERMARKS).read_bytes()
            with pytest.MonkeyPatch.context() as patch:
                refuse(patch, "fsync", errno.ENOSPC, tmp_path / f"{HIGH_WATERMARKS}.tmp")
                fill(manager.log("t", 0), 3)
                for _ in range(4):
                    clock.advance(5_000)
                    manager.tick()
                assert caplog.text.count("high-watermark-checkpoint failed: cannot write a file: No space left") == 1
                assert "Traceback" not in caplog.text
                assert (tmp_path / HIGH_WATERMARKS).read_bytes() == before
                assert f"{HIGH_WATERMARKS}.tmp" not in files(tmp_path)
            clock.advance(5_000)
            manager.tick()
            assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {("t", 0): 6}

    @pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", HIGH_WATERMARKS, CLEAN_SHUTDOWN_FILE])
    def test_the_end_on_a_full_disk_is_no_clean_one(self, tmp_path: Path, name: str) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 1)
        fill(manager.log("t", 0), 3)
        with pytest.MonkeyPatch.context() as patch:
            refuse(patch, "fsync", errno.ENOSPC, tmp_path / f"{name}.tmp")
            assert not manager.shutdown()
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        with managed(tmp_path) as manager:
            assert not manager.had_clean_shutdown
            assert offsets(manager.log("t", 0)) == [0, 1, 2]

    def test_a_power_failure_after_a_refused_sync_loses_nothing_below_the_recovery_point(self, tmp_path: Path) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 1)
        log = manager.log("t", 0)
        fill(log, 3)
        log.flush()
        fill(log, 2)
        with pytest.MonkeyPatch.context() as patch:
            refuse(patch, "fsync", errno.EIO, tmp_path / "t-0")
            with pytest.raises(LogOfflineError):
                log.flush()
        manager.checkpoint_recovery_points()
        assert read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint") == {("t", 0): 3}
        manager.shutdown()


class TestAtTheStart:
    def test_one_partition_cannot_be_loaded(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is offline with a reason, keeps its checkpoints' lines, and the end is no clean one."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2)
            for partition in range(2):
                fill(manager.log("t", partition), 4)
            manager.log("t", 1).delete_records(2)
        (tmp_path / "t-1" / "partition.metadata").write_text("nonsense")
        with managed(tmp_path) as manager:
            assert manager.partitions() == [("t", 0), ("t", 1)]
            assert "metadata" in manager.offline_partitions()["t", 1]
            with pytest.raises(LogOfflineError, match="metadata"):
                manager.log("t", 1)
            with pytest.raises(LogOfflineError, match="metadata"):
                manager.log("t", 1)
            fill(manager.log("t", 0), 1)
            assert manager.statistics()["t"][:2] == (2, (1,))
            with pytest.raises(TidelogError):
                manager.bring_online("t", 1)
        assert caplog.text.count("t-1: offline") == 1
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path)
        assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {("t", 0): 5, ("t", 1): 4}
        assert read_offset_checkpoint(tmp_path / "log-start-offset-checkpoint") == {("t", 1): 2}
        (tmp_path / "t-1" / "partition.metadata").unlink()
        with managed(tmp_path) as manager:
            log = manager.log("t", 1)
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 4, 4)
        with managed(tmp_path) as manager:
            assert manager.had_clean_shutdown

    def test_it_is_brought_online_later(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 4)
        text = (tmp_path / "t-0" / "partition.metadata").read_text()
        (tmp_path / "t-0" / "partition.metadata").write_text("nonsense")
        with managed(tmp_path) as manager:
            (tmp_path / "t-0" / "partition.metadata").write_text(text)
            log = manager.bring_online("t", 0)
            assert (log.high_watermark, offsets(log)) == (4, [0, 1, 2, 3])

    @pytest.mark.parametrize("threads", [1, 2])
    def test_with_several_threads(self, tmp_path: Path, threads: int) -> None:
        manager = started(tmp_path)
        manager.create_topic("t", 6)
        die(manager)
        (tmp_path / "t-3" / "leader-epoch-checkpoint").mkdir()
        with managed(tmp_path, num_recovery_threads_per_data_dir=threads) as manager:
            assert list(manager.offline_partitions()) == [("t", 3)]


# --- writes that the operating system really refuses


def run(folder: Path, program: str, limit_bytes: int) -> dict[str, Any]:
    """Run a program in which no file can grow beyond a limit once it calls `limit()`; return what it prints as JSON."""
    prologue = f"""
    import json, resource
    from tests.storage.managers import *
    from tests.storage.partition_logs import batch, offsets
    from tidelog.errors import *
    folder = Path({str(folder)!r})
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, resource.RLIM_INFINITY))
    def unlimit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    """
    code = textwrap.dedent(prologue) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return {**result, "log": done.stderr}


class TestRealRefusals:
    def test_a_log_that_cannot_grow(self, tmp_path: Path) -> None:
        program = """
        manager = started(folder)
        manager.create_topic("large", 1, {"segment.index.bytes": 1200})
        manager.create_topic("small", 1, {"segment.index.bytes": 1200, "segment.bytes": 5000})
        limit()
        large, small = manager.log("large", 0), manager.log("small", 0)
        acknowledged, reason = 0, ""
        while not reason:
            try:
                acknowledged = large.append_as_leader(batch(value=b"x" * 900), 0).last_offset + 1
            except LogOfflineError as error:
                reason = str(error)
        for _ in range(300):
            small.append_as_leader(batch(value=b"x" * 900), 0)
        size = (folder / "large-0" / "00000000000000000000.log").stat().st_size
        result = {"acknowledged": acknowledged, "reason": reason, "size": size, "readable": offsets(large),
                  "small": small.log_end_offset, "offline": len(manager.offline_partitions())}
        result["clean"] = manager.shutdown()
        unlimit()
        print(json.dumps(result))
        """
        result = run(tmp_path / "data", program, 100_000)
        assert "File too large" in result["reason"]
        assert result["acknowledged"] == 102
        assert result["readable"] == list(range(102))
        assert result["size"] < 100_000, "what was written of the refused append is cut off"
        assert (result["small"], result["offline"], result["clean"]) == (300, 1, False)
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path / "data")
        with managed(tmp_path / "data") as manager:
            assert offsets(manager.log("large", 0)) == list(range(102))
            assert manager.log("small", 0).log_end_offset == 300
            fill(manager.log("large", 0), 1)

    def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(self, tmp_path: Path) -> None:
        program = """
        manager = started(folder)
        manager.create_topic("t", 60)
        manager.checkpoint_high_watermarks()
        before = (folder / "replication-offset-checkpoint").read_text()
        for partition in range(60):
            manager.log("t", partition).append_as_leader(batch(), 0)
            manager.log("t", partition).update_high_watermark(1)
        limit()
        try:
            manager.checkpoint_high_watermarks()
            refused = ""
        except StorageError as error:
            refused = str(error)
        after = (folder / "replication-offset-checkpoint").read_text()
        clean = manager.shutdown()
        unlimit()
        print(json.dumps({"same": before == after, "refused": refused, "clean": clean}))
        """
        result = run(tmp_path / "data", program, 300)
        assert (result["same"], result["clean"]) == (True, False)
        assert "File too large" in result["refused"]
        assert not [name for name in files(tmp_path / "data") if name.endswith(".tmp")]
        assert CLEAN_SHUTDOWN_FILE not in files(tmp_path / "data")
        with managed(tmp_path / "data") as manager:
            assert [manager.log("t", p).log_end_offset for p in range(60)] == [1] * 60

    def test_topics_that_cannot_be_written_down(self, tmp_path: Path) -> None:
        program = """
        manager = started(folder)
        manager.create_topic("t", 1)
        limit()
        refused = []
        for change in (
            lambda: manager.create_topic("u", 2),
            lambda: manager.alter_config("t", {"retention.ms": 5}),
            lambda: manager.add_partitions("t", 4),
            lambda: manager.delete_topic("t"),
        ):
            try:
                change()
            except StorageError as error:
                refused.append(str(error))
        result = {"refused": refused, "topics": list(manager.topics()), "partitions": manager.partitions()}
        unlimit()
        result["clean"] = manager.shutdown()
        print(json.dumps(result))
        """
        result = run(tmp_path / "data", program, 20)
        assert len([text for text in result["refused"] if "File too large" in text]) == 4
        # A deletion has begun, and is gone on with once there is room again.
        assert (result["topics"], result["partitions"], result["clean"]) == ([], [], True)
        with managed(tmp_path / "data") as manager:
            assert (manager.topics(), read_topics(tmp_path / "data")) == ({}, {})


def test_an_unknown_error_is_no_reason_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one log's retention is reported; the other logs' is done with the next look."""
    clock = ManualClock(NOW_MS)
    with LogManager(tmp_path, clock) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 300, "retention.bytes": 0})
        fill(manager.log("t", 0), 10)
        clock.advance(30_000)
        log = manager.log("t", 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "delete_old_segments", lambda: 1 // 0)
            manager.tick()
        assert "background task log-retention failed" in caplog.text
        clock.advance(300_000)
        manager.tick()
        assert len(log.segments) == 1


def test_checkpoints_of_a_partition_that_is_offline_all_the_time(tmp_path: Path) -> None:
    key = TopicPartition("t", 0)
    with managed(tmp_path) as manager:
        manager.create_topic("t", 1)
    (tmp_path / "t-0" / "partition.metadata").write_text("nonsense")
    write_offset_checkpoint(tmp_path / HIGH_WATERMARKS, {key: 77, TopicPartition("gone", 1): 5})
    for _ in range(2):
        with managed(tmp_path) as manager:
            manager.checkpoint_high_watermarks()
    assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {key: 77}


def test_removed_files_are_looked_for_in_slices(tmp_path: Path) -> None:
    """Each slice leaves the rest to a further task, and none of the logs is left out."""
    logs = {TopicPartition("t", i): SimpleNamespace(is_offline=False, log_end_offset=1) for i in range(3 * AT_ONCE + 1)}
    missing: list[TopicPartition] = []
    for key, log in logs.items():
        log.segments = SimpleNamespace(active=SimpleNamespace(log=SimpleNamespace(path=tmp_path / str(key.partition))))
        log.go_offline = lambda _, __, key=key, log=log: (missing.append(key), setattr(log, "is_offline", True))
    waiting: list[Callable[[], None]] = []
    scheduler = SimpleNamespace(
        is_over=True, schedule=lambda _, task: waiting.append(task), aside=lambda work, done: done(work())
    )
    RemovedFiles(SimpleNamespace(logs=logs), scheduler).look()  # type: ignore[arg-type]
    assert len(missing) == AT_ONCE
    del logs[TopicPartition("t", 3 * AT_ONCE)]
    while waiting:
        waiting.pop()()
    assert missing == list(logs)
