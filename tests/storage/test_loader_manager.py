"""When a data folder's logs are recovered at a start, and what a checkpoint that cannot be read does to that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.storage.managers import fill, managed
from tests.storage.partition_logs import NOW_MS, batch, offsets
from tests.storage.test_loader_recovery import spy_on_recovery
from tidelog.clock import ManualClock
from tidelog.formats import names
from tidelog.storage.log_manager import LogManager


def manager(tmp_path: Path) -> LogManager:
    return LogManager(tmp_path, ManualClock(NOW_MS))


def filled(tmp_path: Path, *, crash: bool) -> None:
    """One topic of three partitions with ten records each, closed or killed."""
    one = manager(tmp_path)
    one.startup()
    one.create_topic("t", 3)
    for partition in range(3):
        for _ in range(10):
            one.log("t", partition).append_as_leader(batch(), 0)
    if crash:
        for log in one.logs.values():
            log.flush()
        one.checkpoint_recovery_points()
        for log in one.logs.values():
            log.append_as_leader(batch(), 0)
            log.close_handlers()
        one._unlock()
    else:
        one.shutdown()


class TestLogRecoveryIsCalledUponBrokerCrash:
    """LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash"""

    def test_not_after_a_clean_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        filled(tmp_path, crash=False)
        recovered = spy_on_recovery(monkeypatch)
        with manager(tmp_path) as one:
            assert recovered == []
            assert [offsets(one.log("t", partition)) for partition in range(3)] == [list(range(10))] * 3

    def test_after_a_crash(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        filled(tmp_path, crash=True)
        recovered = spy_on_recovery(monkeypatch)
        with manager(tmp_path) as one:
            assert recovered == [0, 0, 0]
            assert [offsets(one.log("t", partition)) for partition in range(3)] == [list(range(11))] * 3

    def test_twice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The mark of a clean end counts once: a crash of the start itself is a crash."""
        filled(tmp_path, crash=False)
        one = manager(tmp_path)
        one.startup()
        one._unlock()
        recovered = spy_on_recovery(monkeypatch)
        with manager(tmp_path):
            assert recovered == [0, 0, 0]

    @pytest.mark.parametrize(
        "name", [names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT]
    )
    @pytest.mark.parametrize("crash", [True, False])
    def test_a_checkpoint_that_cannot_be_read(self, tmp_path: Path, name: str, crash: bool) -> None:
        """It counts as empty: everything is recovered, each log begins with its first segment."""
        filled(tmp_path, crash=crash)
        (tmp_path / name).write_text("nonsense\n")
        with manager(tmp_path) as one:
            assert not one.offline_partitions()
            assert [offsets(one.log("t", partition)) for partition in range(3)] == [list(range(10 + crash))] * 3

    def test_a_log_that_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """That partition is offline, with the reason; the others are served."""
        filled(tmp_path, crash=True)
        damaged = tmp_path / "t-1" / names.file_name(0, names.LOG_SUFFIX)
        original = os.open

        def open_or_not(path: str | Path, *arguments: int, **keywords: int) -> int:
            if Path(path) == damaged:
                raise OSError(5, "Input/output error")
            return original(path, *arguments, **keywords)

        monkeypatch.setattr(os, "open", open_or_not)
        with manager(tmp_path) as one:
            ((key, reason),) = one.offline_partitions().items()
            assert key == ("t", 1) and "Input/output error" in reason and str(damaged) in reason
            assert offsets(one.log("t", 0)) == offsets(one.log("t", 2)) == list(range(11))


@pytest.mark.parametrize(
    "told_by", [names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT, names.LEADER_EPOCH_CHECKPOINT]
)
def test_an_end_that_is_lost_is_told_before_it_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, told_by: str
) -> None:
    """A start brings checkpoints down to where the log ends: after it nothing says any more that there was more."""
    with managed(tmp_path) as one:
        one.create_topic("t", 1)
        fill(one.log("t", 0), 10)
        size = one.log("t", 0).segments.active.size_bytes
        if told_by == names.LEADER_EPOCH_CHECKPOINT:
            one.log("t", 0).append_as_leader(batch(), 3)
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        (tmp_path / name).write_text("0\n1\nt 0 10\n" if name == told_by else "0\n0\n")
    os.truncate(tmp_path / "t-0" / names.file_name(0, names.LOG_SUFFIX), size // 10 * 7)
    with managed(tmp_path) as one:
        assert one.log("t", 0).log_end_offset == 7
    told = [record.getMessage() for record in caplog.records if "will be assigned to new records" in record.getMessage()]
    assert told == [
        f"{tmp_path / 't-0'}: the log ends at offset 7, but according to {told_by} it reached 10: "
        "the lost offsets will be assigned to new records"
    ]
    caplog.clear()
    with managed(tmp_path):
        assert not caplog.records
