"""What a disk that refuses does to a log: no more writing, a reason, and all that was acknowledged still there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.partition_logs import batch, end_txn, offsets, open_log
from tidelog.errors import LogOfflineError, StorageError, kafka_error_code
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.storage.partition.local_log import INDEX_WRITE_BEHIND, INDEX_WRITE_DELAY_MS
from tidelog.storage.partition.partition_log import PartitionLog

SIZE = len(batch())


class Refusing:
    """Makes calls of `os` fail; `only` says which ones, by their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, name: str, code: int = errno.EIO, only: Callable[..., bool] = lambda *arguments: True) -> None:
        original = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            if only(*arguments):
                raise OSError(code, os.strerror(code))
            return original(*arguments, **keywords)

        self._monkeypatch.setattr(os, name, call)

    def stop(self) -> None:
        self._monkeypatch.undo()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    return Refusing(monkeypatch)


def filled(directory: Path, **properties: int | str) -> PartitionLog:
    log = open_log(directory, **properties)
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    log.update_high_watermark(3)
    return log


def assert_is_offline(log: PartitionLog, reason: str) -> None:
    assert log.is_offline
    assert reason in (log.offline_reason or "")
    for write in (
        lambda: log.append_as_leader(batch(), 0),
        lambda: log.append_as_follower(batch(log.log_end_offset)),
        lambda: log.roll(100),
        log.flush,
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        log.delete_old_segments,
        lambda: log.delete_records(1),
        lambda: log.maybe_assign_epoch_start_offset(5, 100),
        lambda: log.note_leader_epoch_soon(5, 100),
    ):
        with pytest.raises(LogOfflineError, match="offline"):
            write()
    assert offsets(log) == [0, 1, 2]
    assert log.log_end_offset == 3
    log.close()


def test_an_offline_partition_can_be_deleted(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.go_offline("append", OSError("as if"))
    log.rename_dir(tmp_path / "log-0.abc-delete")
    assert offsets(log) == [0, 1, 2]
    log.close_handlers()
    assert not (tmp_path / "log-0").exists()


def test_a_full_disk(tmp_path: Path, refusing: Refusing) -> None:
    log = filled(tmp_path)
    refusing("pwrite", errno.ENOSPC)
    with pytest.raises(LogOfflineError, match="No space left") as caught:
        log.append_as_leader(batch(), 0)
    assert kafka_error_code(type(caught.value)) == (56, "KAFKA_STORAGE_ERROR")
    assert isinstance(caught.value, StorageError)
    refusing.stop()
    assert log.segments.active.log.path.stat().st_size == 3 * SIZE
    assert_is_offline(log, "No space left")
    # A start brings it back, with all that was acknowledged.
    log = open_log(tmp_path, clean=False)
    assert offsets(log) == [0, 1, 2]
    assert log.append_as_leader(batch(), 0).first_offset == 3


def test_a_write_that_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)
    original = os.pwrite
    calls = []

    def half(fd: int, data: bytes, position: int) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(fd, memoryview(data)[: len(data) // 2], position)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(LogOfflineError):
        log.append_as_leader(batch(), 0)
    monkeypatch.undo()
    assert log.segments.active.log.path.stat().st_size == 3 * SIZE
    assert_is_offline(log, "append")


def test_an_index_that_cannot_be_written(tmp_path: Path, refusing: Refusing) -> None:
    """Entries are written some at a time: the log goes on until it meets the disk; then that append did not happen."""
    log = filled(tmp_path, index_interval_bytes=0)
    index_fd = log.segments.active.offset_index._fd
    refusing("pwrite", errno.ENOSPC, lambda fd, *rest: fd == index_fd)
    log.clock.advance(INDEX_WRITE_DELAY_MS)  # type: ignore[attr-defined]
    log.scheduler.tick()
    assert not log.is_offline
    with pytest.raises(LogOfflineError, match="append"):
        for _ in range(INDEX_WRITE_BEHIND):
            log.append_as_leader(batch(), 0)
    refusing.stop()
    # Three appends before the disk refused, and an entry for each batch but the first.
    assert log.log_end_offset == INDEX_WRITE_BEHIND
    assert log.size_bytes == INDEX_WRITE_BEHIND * SIZE
    assert offsets(log) == list(range(INDEX_WRITE_BEHIND))
    log.close()
    log = open_log(tmp_path, clean=False)
    assert offsets(log) == list(range(INDEX_WRITE_BEHIND))


def test_index_files_follow_soon(tmp_path: Path) -> None:
    log = filled(tmp_path, index_interval_bytes=0)
    path = log.segments.active.offset_index.path
    assert not any(path.read_bytes())
    log.clock.advance(INDEX_WRITE_DELAY_MS)  # type: ignore[attr-defined]
    log.scheduler.tick()
    assert path.read_bytes()[:24] == log.segments.active.offset_index.to_bytes() + bytes(8)
    for _ in range(INDEX_WRITE_BEHIND):
        log.append_as_leader(batch(), 0)
    assert path.read_bytes()[8 * INDEX_WRITE_BEHIND :][:8] != bytes(8)


def test_a_sync_that_fails(tmp_path: Path, refusing: Refusing) -> None:
    """It is not tried again: the kernel may have dropped what it could not write."""
    log = filled(tmp_path)
    refusing("fsync")
    with pytest.raises(LogOfflineError, match="flush"):
        log.flush()
    refusing.stop()
    assert log.recovery_point == 0
    assert_is_offline(log, "flush")


def test_a_roll_that_fails(tmp_path: Path, refusing: Refusing) -> None:
    log = filled(tmp_path)
    refusing("open", errno.EACCES, lambda path, *rest: str(path).endswith(".log"))
    with pytest.raises(LogOfflineError, match="roll"):
        log.roll()
    refusing.stop()
    assert_is_offline(log, "roll")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_no_descriptor_to_be_had_takes_no_log_offline(tmp_path: Path, refusing: Refusing, code: int) -> None:
    """Whatever needs a file is refused, changes nothing, and works once there are descriptors again."""
    log = filled(tmp_path)
    end = log.log_end_offset
    for refused in (
        log.roll,
        log.flush,
        lambda: log.truncate_to(end - 1),
        log.delete_old_segments,
        lambda: log.append_as_leader(batch(), 0),
    ):
        log.segments.give_descriptors_back()
        refusing("open", code)
        with pytest.raises(StorageError, match="too many open files") as raised:
            refused()
        assert not isinstance(raised.value, LogOfflineError)
        refusing.stop()
        assert not log.is_offline
        assert (log.log_end_offset, len(log.segments)) == (end, 1)
    log.append_as_leader(batch(), 0)
    log.roll()
    log.flush()
    assert offsets(log) == list(range(end + 1))


def test_append_to_or_read_from_log_in_failed_log_dir(tmp_path: Path, refusing: Refusing) -> None:
    """UnifiedLogTest.testAppendToOrReadFromLogInFailedLogDir: an aborted transaction that cannot be noted."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(count=2, producer=Producer(1, 0, 0), transactional=True), 0)
    refusing("open", errno.EACCES, lambda path, *rest: str(path).endswith(".txnindex"))
    with pytest.raises(LogOfflineError):
        end_txn(log, ControlType.ABORT, 1)
    refusing.stop()
    assert log.is_offline
    with pytest.raises(LogOfflineError):
        log.append_as_leader(batch(), 0)
    # Not acknowledged, but in the log: a start finds the marker, and notes the transaction.
    log.close()
    log = open_log(tmp_path, clean=False)
    assert [txn[:3] for txn in log.local.collect_aborted_transactions(0, 10)] == [(1, 0, 2)]


def test_an_interrupt_between_the_file_and_what_is_known_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log.watermarks, "on_log_end_moved", interrupted)
    with pytest.raises(KeyboardInterrupt):  # A plain batch is appended by one call of C, which nothing interrupts.
        log.append_as_leader(batch(producer=Producer(7, 0, 0)), 0)
    assert log.is_offline
    with pytest.raises(LogOfflineError, match="interrupted"):
        log.append_as_leader(batch(), 0)


def test_a_flush_that_waits_for_its_tick_takes_the_log_offline(tmp_path: Path, refusing: Refusing) -> None:
    log = filled(tmp_path)
    log.roll()
    refusing("fsync")
    log.scheduler.tick()
    refusing.stop()
    assert_is_offline(log, "flush")


def test_what_waits_in_the_scheduler_leaves_a_closed_log_alone(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.roll()
    log.flush(force_active=True)
    log.close()
    log.scheduler.tick()
    assert not log.is_offline


def test_a_close_that_fails(tmp_path: Path, refusing: Refusing) -> None:
    log = filled(tmp_path)
    refusing("fsync")
    with pytest.raises(LogOfflineError, match="close"):
        log.close()
    refusing.stop()
    assert log.is_offline
    log.close()


def test_the_first_reason_stays(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.go_offline("append", OSError("first"))
    log.go_offline("flush", OSError("second"))
    assert log.offline_reason == "append: first"
